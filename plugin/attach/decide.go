// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/shaping"
)

// Errors that callers tell apart.
var (
	// ErrForeignQdisc: a root qdisc of somebody else's is on the device.
	ErrForeignQdisc = errors.New("root qdisc is not podweir's")
	// ErrHookTaken: a hook cannot be shared with the party that holds it.
	ErrHookTaken = errors.New("hook is held by another party")
	// ErrRecordVersion: the pinned record has another format.
	ErrRecordVersion = errors.New("unknown record version")
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
	// Strict makes it an error that a mode, queue or place which was asked for by
	// name cannot be had. Otherwise auto is used: a limit that is kept in another
	// way is better than none.
	Strict bool
	// Prior are the choices of an earlier run, which stay.
	Prior map[string]Choice
	// Random draws a handle major, 1 to 0xffef.
	Random func() uint16
}

// Decide makes every choice that Compute leaves open, and returns what should
// be on the interface together with the choices to record. It returns an error
// wrapping [ErrForeignQdisc] or [ErrHookTaken] where no limit can be had without
// touching what belongs to somebody else, or, if the request is strict, none of
// the kind that was asked for.
func Decide(req *Request, obs *Observed) (*Desired, map[string]Choice, error) {
	want := &Desired{
		Interface:  req.Interface,
		Directions: make(map[shaping.Direction]*DirectionState),
	}
	choices := make(map[string]Choice)
	for _, d := range shaping.Directions {
		if req.Config.Limit(d) == nil {
			continue
		}
		ds, choice, err := decideDirection(req, obs, d)
		if err != nil {
			return nil, nil, fmt.Errorf("%v: %w", d, err)
		}
		want.Directions[d] = ds
		choices[d.String()] = choice
	}
	return want, choices, nil
}

// decideDirection tries what was asked for, each time anew, and what auto is if
// that cannot be had. The choices of an earlier run are of the one or the other.
func decideDirection(req *Request, obs *Observed, d shaping.Direction) (*DirectionState, Choice, error) {
	prior := req.Prior[d.String()]
	asked, settled := prior, prior
	other := Choice{Majors: prior.Majors, MadeClsact: prior.MadeClsact}
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
		return nil, choice, err
	}
	choice.Settled = true
	state.Params.Decline(fmt.Sprintf("not the %s: %v; auto instead", named(limit), err))
	return state, choice, nil
}

// byName says that something was asked for that auto may do without.
func byName(l *shaping.Limit) bool { return named(l) != "" }

// named lists what was asked for by name.
func named(l *shaping.Limit) string {
	var all []string
	if l.Mode != shaping.ModeAuto {
		all = append(all, "mode "+l.Mode.String())
	}
	if l.Queue != shaping.QueueAuto {
		all = append(all, "queue "+l.Queue.String())
	}
	if l.Place == shaping.PlaceIFB {
		all = append(all, "place "+l.Place.String())
	}
	return strings.Join(all, ", ")
}

// settle is a limit that leaves to podweir how it is kept. A place on an ifb stays
// one where there is an ifb: packets may go past the host's side.
func settle(l *shaping.Limit) *shaping.Limit {
	out := *l
	out.Mode, out.Queue = shaping.ModeAuto, shaping.QueueAuto
	if l.Place == shaping.PlaceIFB {
		out.Place = shaping.PlacePreferIFB
	}
	return &out
}

// withLimit is a configuration with another limit in one direction.
func withLimit(c *shaping.Config, d shaping.Direction, l *shaping.Limit) *shaping.Config {
	out := *c
	if d == shaping.Egress {
		out.Egress = l
	} else {
		out.Ingress = l
	}
	return &out
}

// decideAs decides about one direction as it is asked for.
func decideAs(req *Request, obs *Observed, d shaping.Direction, choice Choice) (*DirectionState, Choice, error) {
	params, err := compute(req, d, &choice)
	if err != nil {
		return nil, choice, err
	}
	if why := obstacle(req, obs, params); why != nil {
		if pinned(req.Config.Limit(d)) && !obs.hides() {
			return nil, choice, why
		}
		if params, choice, err = around(req, obs, params, &choice, why); err != nil {
			return nil, choice, err
		}
	}
	if choice.HookKind, err = hookKind(req, obs, params, choice.HookKind); err != nil {
		return nil, choice, err
	}
	settleCeiling(req, obs, params)
	choice.MadeClsact = missingClsact(obs, params, choice.HookKind, choice.MadeClsact)
	if choice.Note != "" {
		params.Notes = append(params.Notes, choice.Note)
	}
	return &DirectionState{Params: params, HookKind: choice.HookKind}, choice, nil
}

// around finds what can be had in place of a queue that meets an obstacle: an
// ifb in the pod, which somebody who owns the host side's root qdisc does not
// reach, and else policing.
func around(req *Request, obs *Observed, p *shaping.Params, was *Choice, why error) (*shaping.Params, Choice, error) {
	if p.Direction == shaping.Ingress && p.Side == shaping.SideHost && req.Facts.IFB {
		choice := Choice{Place: shaping.PlaceIFB, Note: why.Error() + "; queue on an ifb instead", MadeClsact: was.MadeClsact}
		params, err := compute(req, p.Direction, &choice)
		if err == nil && obstacle(req, obs, params) == nil {
			return params, choice, nil
		}
	}
	choice := Choice{Queue: shaping.QueueNone, Note: why.Error() + "; policing instead", MadeClsact: was.MadeClsact}
	params, err := compute(req, p.Direction, &choice)
	return params, choice, err
}

// pinned says that the operator left no choice but a queue.
func pinned(l *shaping.Limit) bool {
	return l.Queue != shaping.QueueAuto || l.Mode == shaping.ModeQdisc
}

// compute runs shaping.Compute with the queue of an earlier choice and with
// the majors that were drawn before, and records those drawn now. A redirect
// that was left for policing was left whatever mode is asked for: policy comes
// before the cap.
func compute(req *Request, d shaping.Direction, choice *Choice) (*shaping.Params, error) {
	cfg := req.Config
	if choice.Queue != 0 || choice.Place != 0 {
		limit := *cfg.Limit(d)
		limit.Place = cmp.Or(choice.Place, shaping.PlaceAuto)
		limit.Queue = cmp.Or(choice.Queue, limit.Queue)
		if choice.Queue == shaping.QueueNone && limit.Mode == shaping.ModeQdisc {
			limit.Mode = shaping.ModeAuto
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
	if p.Redirect && obs.Device(shaping.SidePod).NetfilterIngress {
		return fmt.Errorf("%w: "+chainBehind, ErrHookTaken, req.Interface.PodName)
	}
	dev := obs.Device(p.Side)
	root := dev.Root()
	if p.Tree == nil || root == nil || req.ReplaceQdisc || root.Handle == p.Tree.Qdiscs[0].Handle {
		return nil
	}
	if p.Side == shaping.SideIFB {
		return nil // the device is ours, and so is what an earlier attachment left on it
	}
	return fmt.Errorf("%w: %s %x: on %s", ErrForeignQdisc, root.Kind, uint32(root.Handle)>>16, dev.Name)
}

// hookKind resolves an automatic hook kind; prior is that of an earlier run.
// Where nobody else is on a hook inside the pod, clsact comes before TCX, whose
// attach waits for RCU under RTNL (ruling 3). On the host side others may come
// later, and they expect clsact to be theirs: TCX first. A filter is asked after
// every TCX program and after the filters before it, each of which may end the
// chain: where somebody else is, clsact would be a limit that may not hold.
func hookKind(req *Request, obs *Observed, p *shaping.Params, prior shaping.HookKind) (shaping.HookKind, error) {
	if p.Hook != shaping.HookEgress && p.Hook != shaping.HookIngress {
		return shaping.HookKindAuto, nil
	}
	dev := obs.Device(p.Side)
	other := dev.firstOther(p.Hook)
	kind := p.HookKind
	if kind == shaping.HookKindAuto && prior == shaping.HookKindTCX {
		kind = shaping.HookKindTCX
	}
	if kind == shaping.HookKindAuto {
		kind = shaping.HookKindClsact
		if req.TCX && (p.Side == shaping.SideHost || other != nil) {
			kind = shaping.HookKindTCX
		}
	}
	switch {
	case kind == shaping.HookKindClsact && other != nil && other.Kind == shaping.HookKindTCX:
		return 0, fmt.Errorf("%w: TCX program %q is asked before every filter on %v of %s", ErrHookTaken, other.Name, p.Hook, dev.Name)
	case kind == shaping.HookKindClsact && other != nil:
		return 0, fmt.Errorf("%w: clsact filter %q on %v of %s", ErrHookTaken, other.Name, p.Hook, dev.Name)
	case kind == shaping.HookKindTCX && !req.TCX:
		return 0, fmt.Errorf("mode %v: the kernel has no TCX (Linux 6.6)", p.Mode)
	}
	return kind, nil
}

// settleCeiling leaves out a ceiling that cannot be had: the pod keeps its limit
// without one. It is at the head of the TCX programs. As a filter it would stand on
// the hook where others come later: Cilium takes every filter away that it finds
// there, and what answers "pass" before it starves it.
func settleCeiling(req *Request, obs *Observed, p *shaping.Params) {
	switch {
	case !p.Ceiling:
	case !obs.Device(shaping.SideHost).Exists:
		p.LeaveCeiling("the interface has no other end on the host")
	case !req.TCX:
		p.LeaveCeiling("the kernel has no TCX (Linux 6.6)")
	}
}

// missingClsact lists the sides where a clsact qdisc will be ours to remove:
// made are those of earlier runs.
func missingClsact(obs *Observed, p *shaping.Params, kind shaping.HookKind, made []shaping.Side) []shaping.Side {
	sides := slices.Clone(made)
	need := func(s shaping.Side) {
		if !obs.Device(s).Clsact && !slices.Contains(sides, s) {
			sides = append(sides, s)
		}
	}
	if kind == shaping.HookKindClsact {
		need(p.Side)
	}
	if p.Guard || p.Redirect {
		need(shaping.SidePod)
	}
	return sides
}

// ProgramPrefix starts the name of every BPF program of podweir's.
const ProgramPrefix = "pw_"

// Ours says whether a program of this name is podweir's.
func Ours(program string) bool {
	return len(program) >= len(ProgramPrefix) && program[:len(ProgramPrefix)] == ProgramPrefix
}
