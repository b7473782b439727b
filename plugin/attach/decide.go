// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Errors that callers tell apart.
var (
	// ErrForeignQdisc: a root qdisc of another party's is on the device.
	ErrForeignQdisc = errors.New("root qdisc is not podweir's")
	// ErrHookTaken: a hook cannot be shared with the party that holds it.
	ErrHookTaken = judge.ErrHookTaken
	// ErrUnseen: nothing can limit what comes to the interface.
	ErrUnseen = errors.New("to an ipvlan device in mode l3s packets come past its hooks; in mode l2 or l3 it has a limit")
	// ErrNoHostEnd: the interface has no other end in the host's namespace.
	ErrNoHostEnd = errors.New("the interface has no other end on the host")
)

// Request is what one interface is to be given.
type Request struct {
	Interface Interface
	Config    *shaping.Config
	Facts     shaping.Facts
	// TCX says that the kernel has TCX hooks (Linux 6.6).
	TCX bool
	// ReplaceQdisc is the operator's word to replace a foreign root qdisc.
	ReplaceQdisc bool
	// Strict makes it an error that a mode, queue or place which was requested by
	// name is not available. Otherwise auto is used: a limit that is kept in another
	// way is better than none.
	Strict bool
	// Prior are the choices of an earlier run, which stay.
	Prior Choices
	// Former are those of another attachment that the interface is taken over from: they tell what its
	// devices had before podweir. Nil if it is not.
	Former Choices
	// Random draws a handle major, 1 to 0xffef.
	Random func() uint16
}

// Decide makes every choice that Compute leaves open, and returns what should
// be on the interface together with the choices to record. It returns an error
// wrapping [ErrForeignQdisc] or [ErrHookTaken] where no limit is available without
// touching what belongs to another party, or, if the request is strict, none of
// the kind that was requested.
func Decide(req *Request, obs *Observed) (*Desired, Choices, error) {
	want := &Desired{
		Interface:  req.Interface,
		Directions: make(map[terms.Direction]*DirectionState),
	}
	choices := make(Choices)
	for _, d := range terms.Directions {
		if req.Config.Limit(d) == nil {
			continue
		}
		ds, choice, err := decideDirection(req, obs, d)
		if err != nil {
			return nil, nil, fmt.Errorf("%v: %w", d, err)
		}
		want.Directions[d] = ds
		choices[d] = choice
	}
	return want, choices, nil
}

// decideDirection tries what was requested every time, and what auto is if
// that is not available. The choices of an earlier run are of the one or the other.
func decideDirection(req *Request, obs *Observed, d terms.Direction) (*DirectionState, Choice, error) {
	prior := req.Prior[d]
	asked, settled := prior, prior
	other := prior.kept()
	if prior.Settled {
		asked = other
	} else {
		settled = other
	}
	state, choice, err := decideAs(req, obs, d, asked)
	limit := req.Config.Limit(d)
	if err == nil || req.Strict || !byName(limit) {
		return state, choice, err
	}
	auto := *req
	auto.Config = withLimit(req.Config, d, settle(limit))
	state, choice, failed := decideAs(&auto, obs, d, settled)
	if failed != nil {
		return nil, choice, fmt.Errorf("not the %s: %w; nor what auto takes: %w", named(limit), err, failed)
	}
	choice.Settled = true
	way := "policing"
	if p := state.Params; p.Tree != nil {
		way = fmt.Sprintf("a queue on the %v side", p.Side)
	}
	state.Params.Decline(fmt.Sprintf("not the %s: %v; %s instead", named(limit), err, way))
	return state, choice, nil
}

// byName says that something was requested that auto may do without.
func byName(l *shaping.Limit) bool { return named(l) != "" }

// named lists what was requested by name.
func named(l *shaping.Limit) string {
	var all []string
	if l.Mode != terms.ModeAuto {
		all = append(all, "mode "+l.Mode.String())
	}
	if l.Queue != terms.QueueAuto {
		all = append(all, "queue "+l.Queue.String())
	}
	if l.Place == terms.PlaceIFB {
		all = append(all, "place "+l.Place.String())
	}
	return strings.Join(all, ", ")
}

// settle is a limit that leaves to podweir how it is kept. A place on an ifb stays
// one where there is an ifb: packets may go past the host's side.
func settle(l *shaping.Limit) *shaping.Limit {
	out := *l
	out.Mode, out.Queue = terms.ModeAuto, terms.QueueAuto
	if l.Place == terms.PlaceIFB {
		out.Place = terms.PlacePreferIFB
	}
	return &out
}

// withLimit is a configuration with another limit in one direction.
func withLimit(c *shaping.Config, d terms.Direction, l *shaping.Limit) *shaping.Config {
	out := *c
	out.SetLimit(d, l)
	return &out
}

// decideAs decides about one direction as it is requested. What an earlier run got
// in place of that is never a wish: what is wanted is tried first, each time.
func decideAs(req *Request, obs *Observed, d terms.Direction, prior Choice) (*DirectionState, Choice, error) {
	choice := prior
	if prior.Degraded() {
		choice = prior.kept()
	}
	params, err := compute(req, obs, d, &choice)
	if err != nil {
		return nil, choice, err
	}
	if why := choice.fit(req, obs, params); why != nil {
		if pinned(req.Config.Limit(d)) && !obs.Hides() {
			return nil, choice, why
		}
		if params, choice, err = around(req, obs, params, &prior, why); err != nil {
			return nil, choice, err
		}
	}
	choice.CeilingKind = settleCeiling(req, obs, params, choice.CeilingKind)
	choice.GuardKind = settleGuard(req, obs, params, choice.GuardKind)
	choice.MadeClsact = missingClsact(obs, params, &choice)
	if choice.Note != "" {
		params.Notes = append(params.Notes, choice.Note)
	}
	state := &DirectionState{Params: params, HookKind: choice.HookKind, CeilingKind: choice.CeilingKind, GuardKind: choice.GuardKind}
	state.Offload, state.Pacing = choice.limitOffload(obs, params), choice.pace(obs, params)
	return state, choice, nil
}

// limitOffload returns what the pod's device should have, nil if podweir leaves it alone
// and always did, and notes what it had before.
func (c *Choice) limitOffload(obs *Observed, p *shaping.Params) *Offload {
	if c.Offload == nil && p.OffloadBytes == 0 {
		return nil
	}
	before := obs.Device(QueueSide(p.Direction)).Offload
	if c.Offload != nil {
		before = *c.Offload
	}
	want := before
	if p.OffloadBytes != 0 {
		want = before.atMost(p.OffloadBytes)
	}
	if c.Offload == nil && want != before {
		c.Offload = &before
	}
	return &want
}

// pace returns by what TCP in the pod should size its packets, nil if podweir leaves that alone
// and always did, and notes what its namespace had before. What another party chose is kept.
func (c *Choice) pace(obs *Observed, p *shaping.Params) *shaping.Pacing {
	if p.Direction != terms.Egress || obs.Pacing == nil || c.Pacing == nil && !p.Paced {
		return nil
	}
	want, was := obs.Pacing.Next(c.before(), p.Paced)
	c.Pacing = given(was)
	if p.Kept = obs.Pacing.Foreign(); p.Paced && len(p.Kept) > 0 {
		p.Notes = append(p.Notes, "kept, because podweir did not set it: "+strings.Join(p.Kept, ", "))
	}
	return &want
}

// before is [Choice.Pacing], zero if podweir changed nothing.
func (c *Choice) before() shaping.Pacing {
	if c.Pacing == nil {
		return shaping.Pacing{}
	}
	return *c.Pacing
}

// given is [Choice.Pacing] for what podweir changed.
func given(before shaping.Pacing) *shaping.Pacing {
	if before == (shaping.Pacing{}) {
		return nil
	}
	return &before
}

// GivenBack is what a pod's namespace that has now should have when the limit is gone.
func (c *Choice) GivenBack(now shaping.Pacing) shaping.Pacing {
	back, _ := now.Next(c.before(), false)
	return back
}

// fit chooses how the program of the parameters is attached, and says why they do not
// fit what is there.
func (c *Choice) fit(req *Request, obs *Observed, p *shaping.Params) error {
	if why := obstacle(req, obs, p); why != nil {
		return why
	}
	var err error
	c.HookKind, err = hookKind(req, obs, p, c.HookKind)
	return err
}

// around finds what is available in place of a queue that meets an obstacle: an
// ifb in the pod, which another party that owns the host side's root qdisc or its hook does
// not reach, and else policing.
func around(req *Request, obs *Observed, p *shaping.Params, prior *Choice, why error) (*shaping.Params, Choice, error) {
	if p.Direction == terms.Ingress && p.Side == terms.SideHost && req.Facts.IFB {
		choice := prior.instead(0, terms.PlaceIFB, why.Error()+"; queue on an ifb instead")
		params, err := compute(req, obs, p.Direction, &choice)
		if err == nil && choice.fit(req, obs, params) == nil {
			return params, choice, nil
		}
	}
	choice := prior.instead(terms.QueueNone, 0, why.Error()+"; policing instead")
	params, err := compute(req, obs, p.Direction, &choice)
	if err == nil {
		err = choice.fit(req, obs, params)
	}
	return params, choice, err
}

// pinned says that the operator left no choice but a queue.
func pinned(l *shaping.Limit) bool {
	return l.Queue != terms.QueueAuto || l.Mode == terms.ModeQdisc
}

// compute runs shaping.Compute with the queue of an earlier choice and with
// the majors that were drawn before, and records those drawn now. Where a queue of
// podweir's stands that no record tells of, it takes over the handles, so that what
// waits in that queue stays. A queue of another shape has handles of its own: the kernel puts it
// into the place of the one that stands in one step.
func compute(req *Request, obs *Observed, d terms.Direction, choice *Choice) (*shaping.Params, error) {
	params, err := computeWith(req, d, choice)
	if err != nil || params.Tree == nil {
		return params, err
	}
	dev := obs.Device(params.Side)
	own := dev.ownMajors()
	if len(own) != 0 && !slices.Contains(choice.Majors, own[0]) {
		choice.Majors = own
		params, err = computeWith(req, d, choice)
	}
	if err != nil || len(own) == 0 {
		return params, err
	}
	differs, inPlace := TreeDiff(params.Tree, &dev.Tree)
	if inPlace {
		return params, nil
	}
	choice.Majors = nil
	if params, err = computeWith(req, d, choice); err != nil {
		return nil, err
	}
	params.Replaces = differs
	choice.Majors = append(choice.Majors, own...) // until the new one is there they tell whose it is
	return params, nil
}

// computeWith is compute with the handles of the choice. A redirect that was left
// for policing was left whatever mode is requested: policy comes before the cap.
func computeWith(req *Request, d terms.Direction, choice *Choice) (*shaping.Params, error) {
	cfg := req.Config
	if choice.Queue != 0 || choice.Place != 0 {
		limit := *cfg.Limit(d)
		limit.Place = cmp.Or(choice.Place, terms.PlaceAuto)
		limit.Queue = cmp.Or(choice.Queue, limit.Queue)
		if choice.Queue == terms.QueueNone && limit.Mode == terms.ModeQdisc {
			limit.Mode = terms.ModeAuto
		}
		cfg = withLimit(cfg, d, &limit)
	}
	drawn := 0
	majors := func() uint16 {
		if drawn == len(choice.Majors) {
			choice.Majors = append(slices.Clone(choice.Majors), freshMajor(req.Random, choice.Majors))
		}
		drawn++
		return choice.Majors[drawn-1]
	}
	return shaping.Compute(cfg, d, req.Facts, majors)
}

func freshMajor(random func() uint16, taken []uint16) uint16 {
	for {
		if m := random(); !slices.Contains(taken, m) {
			return m
		}
	}
}

// chainBehind is what keeps the redirect away from a device.
const chainBehind = "netfilter ingress chain on %s, which a redirect would hide packets from"

// obstacle says why a queue cannot be made where the parameters want it.
func obstacle(req *Request, obs *Observed, p *shaping.Params) error {
	if p.Redirect && obs.Device(terms.SidePod).NetfilterIngress {
		return fmt.Errorf("%w: "+chainBehind, ErrHookTaken, req.Interface.PodName)
	}
	// A policer at the head of the TCX list sees every packet and passes it on. Without TCX
	// nothing is available: see [Inspection.Unheld].
	if starved := obs.starved(); p.Redirect && req.TCX && starved != "" {
		return fmt.Errorf("%w: %s", ErrHookTaken, starved)
	}
	dev := obs.Device(p.Side)
	if p.Tree != nil && p.Side == terms.SideHost && !dev.Exists {
		return fmt.Errorf("%w: %s", ErrNoHostEnd, req.Interface.PodName)
	}
	root := dev.Root()
	if p.Tree == nil || root == nil || req.ReplaceQdisc || root.Handle == p.Tree.Qdiscs[0].Handle {
		return nil
	}
	if p.Side == terms.SideIFB || dev.OwnTree {
		return nil // it is what an earlier attachment left
	}
	return fmt.Errorf("%w: %s %x: on %s", ErrForeignQdisc, root.Kind, major(root.Handle), dev.Name)
}

// unheld says that what is wanted for ingress gets no packet, nil if it may.
func (s *Desired) unheld(obs *Observed) error {
	in, starved := s.Directions[terms.Ingress], obs.starved()
	switch {
	case in != nil && s.Interface.Unseen:
		return fmt.Errorf("%v is not limited: %w", terms.Ingress, ErrUnseen)
	case in == nil || !in.Params.Redirect || starved == "":
		return nil
	}
	return fmt.Errorf("%v is not limited: %w: %s, and podweir cannot go ahead of it: %w", terms.Ingress, ErrHookTaken, starved, judge.ErrNoTCX)
}

// hookKind asks the judge how the program of the parameters is attached, if it is on a
// hook that others can use; prior is an earlier run's.
func hookKind(req *Request, obs *Observed, p *shaping.Params, prior terms.HookKind) (terms.HookKind, error) {
	if p.Hook != terms.HookEgress && p.Hook != terms.HookIngress {
		return terms.HookKindAuto, nil
	}
	q := judge.Question{Mode: p.Mode, Rules: req.rules(), TCX: req.TCX, Prior: prior, Limits: p.Program != shaping.ProgramBand}
	return q.Attach(obs.Device(p.Side).Chain(p.Side, p.Hook))
}

// rules are what the node's configuration passes on of the CNI's.
func (r *Request) rules() judge.Rules {
	return judge.Rules{HostTCX: r.Config.HostTCX, PodTCX: r.Config.PodTCX}
}

// settleCeiling asks the judge how the ceiling is attached, and leaves out one that is
// not possible: the pod keeps its limit without it.
func settleCeiling(req *Request, obs *Observed, p *shaping.Params, prior terms.HookKind) terms.HookKind {
	side := p.CeilingSide()
	dev := obs.Device(side)
	switch {
	case !p.HasCeiling():
		return 0
	case !dev.Exists:
		p.LeaveCeiling("the interface has no other end on the host")
		return 0
	}
	q := judge.Question{Mode: terms.ModeAuto, Rules: req.rules(), TCX: req.TCX, Prior: prior}
	kind, err := q.Attach(dev.Chain(side, terms.HookIngress))
	if err != nil {
		p.LeaveCeiling(err.Error())
	}
	return kind
}

// settleGuard asks the judge how the guard is attached, and leaves out one that would need
// a filter where none may stand. Beside a filter of another party on a kernel without
// TCX it stands behind that.
func settleGuard(req *Request, obs *Observed, p *shaping.Params, prior terms.HookKind) terms.HookKind {
	if !p.Guard {
		return 0
	}
	q := judge.Question{Mode: terms.ModeAuto, Rules: req.rules(), TCX: req.TCX, Prior: prior}
	chain := obs.Device(terms.SidePod).Chain(terms.SidePod, terms.HookEgress)
	kind, err := q.Attach(chain)
	switch {
	case err == nil:
		return kind
	case errors.Is(err, judge.ErrNoTCX) || chain.Closed() != "":
		p.LeaveGuard(err.Error())
		return 0
	default:
		return cmp.Or(prior, terms.HookKindClsact)
	}
}

// noRedirect says why nothing that comes to the pod's device may be redirected to an ifb,
// "" if it may. What leaves an ifb passes no hook of the device again (tc_skip_classify in
// drivers/net/ifb.c): the redirect by which a runtime hands packets to its virtual machine
// would not see them. The redirect is a filter, and stands on no hook that takes none.
func noRedirect(c *shaping.Config, obs *Observed) string {
	const why = ", which would not see what comes from an ifb"
	if c.PodTCX {
		return "podHook is tcx, for a runtime that redirects what comes to the pod's device" + why
	}
	chain := obs.Device(terms.SidePod).Chain(terms.SidePod, terms.HookIngress)
	if closed := chain.Closed(); closed != "" {
		return closed
	}
	for _, other := range chain.Others() {
		if other.RedirectIndex != 0 {
			return fmt.Sprintf("%v on the pod's device redirects what comes there%s", other, why)
		}
	}
	return ""
}

// missingClsact lists the sides where a clsact qdisc will be ours to remove, those
// of earlier runs included.
func missingClsact(obs *Observed, p *shaping.Params, choice *Choice) []terms.Side {
	sides := slices.Clone(choice.MadeClsact)
	need := func(s terms.Side) {
		if !obs.Device(s).Clsact && !slices.Contains(sides, s) {
			sides = append(sides, s)
		}
	}
	if choice.HookKind == terms.HookKindClsact {
		need(p.Side)
	}
	if choice.CeilingKind == terms.HookKindClsact {
		need(p.CeilingSide())
	}
	if choice.GuardKind == terms.HookKindClsact || p.Redirect {
		need(terms.SidePod)
	}
	return sides
}
