// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Inspection is one look at one interface of an attachment: what [Inspect] makes of it.
// ADD, CHECK, the agent, repair, status, doctor and metrics all work from it.
type Inspection struct {
	// Interface is the one that is there now.
	Interface Interface
	Observed  *Observed
	// Want is what should be there: what is wanted as far as it is available now.
	Want *Desired
	// Plan are the steps from what is there to that, each with what differs.
	Plan []Action
	// Degraded is what is wanted and not available now.
	Degraded []Degradation
	// Starved names who keeps every packet from the redirect that is there: ingress is not
	// limited. It is "" if nobody does, or there is no redirect.
	Starved string
	// Unheld says that a limit does not hold, and why no step can mend it; nil if all hold. The
	// error wraps [ErrHookTaken] or [ErrUnseen].
	Unheld error

	// Choices are to be recorded before the first step is taken.
	Choices Choices
	// Before are the choices of the earlier run, or what is presumed without one.
	Before Choices
	// Remade are the directions that have no limit any more, or get another way of limiting. Begin
	// are the steps of the plan that are taken with the earlier record, Steps the others.
	Remade       []terms.Direction
	Begin, Steps []Action

	request *Request
}

// Prior is what an earlier run wanted of an interface, and chose.
type Prior struct {
	Config  *shaping.Config
	Choices Choices
}

// Degradation says that a direction is limited in another way than is wanted. Every
// look tries the wanted way again.
type Degradation struct {
	Direction terms.Direction `json:"-"`
	// Reason says why the wanted way is not available, and what is used instead.
	Reason string `json:"reason"`
	// Since is when that began, zero if it is not known.
	Since time.Time `json:"since,omitzero"`
}

// Inspect compares what is requested for an interface with what is there. prior is what an
// earlier run wanted, nil if there was none. now is when the look is made. It takes out of
// obs what is to be torn down, and completes the request. Beside an error about what is
// wanted it returns what was observed.
func Inspect(req *Request, obs *Observed, prior *Prior, now time.Time) (*Inspection, error) {
	if why := cmp.Or(obs.NoIFB, noRedirect(req.Config, obs)); why != "" {
		req.Facts.IFB, req.Facts.NoIFB = false, why
	}
	req.Facts.Pacing = obs.Pacing != nil
	in := &Inspection{Interface: req.Interface, Observed: obs, request: req}
	if obs.redirects() {
		in.Starved = obs.starved()
	}
	switch {
	case prior == nil && req.Former != nil:
		in.Before = req.Former.found()
		req.Prior = in.Before
		// The link of the former's guard goes with its pins: this one takes it, or attaches its own.
		pod := obs.Device(terms.SidePod)
		pod.Hooks = slices.DeleteFunc(pod.Hooks, func(h HookProgram) bool { return h.Ours && h.Name == guardName && h.Kind == terms.HookKindTCX })
	case prior == nil:
		in.Before = Presume(obs)
		req.Prior = in.Before
	default:
		in.Before = prior.Choices
		gone, renewed := moved(prior.Config, req.Config)
		for _, d := range gone {
			*obs = *obs.without(d)
		}
		in.Remade = slices.Concat(gone, renewed)
		req.Prior = keep(prior.Choices, gone, renewed, req.Config)
	}
	if err := in.decide(prior); err != nil {
		return in, err
	}
	in.degraded(prior, now)
	return in, nil
}

// decide is [Decide], and the plan.
func (in *Inspection) decide(prior *Prior) error {
	want, choices, err := Decide(in.request, in.Observed)
	if err != nil {
		return err
	}
	in.keepShares(want)
	in.Want, in.Choices, in.Unheld = want, choices, want.unheld(in.Observed)
	in.Remade = slices.DeleteFunc(append(in.Remade, in.switched()...), func(d terms.Direction) bool { return in.left(d) })
	for _, d := range in.Remade {
		delete(in.Observed.Dataplanes, d)
	}
	in.Begin = in.remakes(prior)
	in.Steps = Plan(want, in.Observed)
	for _, d := range terms.Directions {
		renewed := slices.ContainsFunc(in.Begin, func(a Action) bool { return a.Kind == RenewSlot && a.Direction == d })
		if renewed || in.left(d) {
			in.Steps = append(in.Steps, Action{Kind: FreeSlot, Direction: d, State: want.Directions[d], Reason: "no program uses it any more"})
		}
	}
	in.Plan = slices.Concat(in.Begin, in.Steps)
	return nil
}

// left says that an interrupted run left a slot of a direction. What it took for its successor is then
// changed in place: there is no third.
func (in *Inspection) left(d terms.Direction) bool {
	return in.Want.Directions[d] != nil && in.Observed.Left[d]
}

// keepShares gives what is wanted the shares that directions have of their groups' limits now. A new queue begins
// with the first share, and so does its slot: the agent's loop sees by the slot that it has to set both.
func (in *Inspection) keepShares(want *Desired) {
	for d, ds := range want.Directions {
		p, have := ds.Params, in.Observed.Dataplanes[d]
		tree := &in.Observed.Device(p.Side).Tree
		if p.Divided && have != nil && have.ProgramName == p.ProgramName() && p.Tree.Share(tree) != nil {
			shaping.NewDivider(in.request.Config, in.request.Facts, p).Keep(p, &have.Datapath, tree)
		}
	}
}

// whyMoved returns the reason why a direction is limited in another way than before.
func whyMoved(was, is *Choice) string {
	switch {
	case is.Degraded() && is.Note != was.Note:
		return is.Note
	case was.Degraded() && !is.Degraded():
		return "what is wanted is available again; it was not: " + was.Note
	}
	return "another way of limiting it"
}

// remakes says why directions are made again.
func (in *Inspection) remakes(prior *Prior) []Action {
	var all []Action
	for _, d := range in.Remade {
		a := Action{Kind: RenewSlot, Direction: d, State: in.Want.Directions[d]}
		was, is := in.Before[d], in.Choices[d]
		switch {
		case a.State == nil:
			a.Kind, a.Reason = TearDown, "attached, but no limit is requested"
		case prior != nil && in.request.Config.Observe != prior.Config.Observe:
			a.Reason = "the limit is to be enforced, and was observed only"
			if in.request.Config.Observe {
				a.Reason = "the limit is to be observed only, and was enforced"
			}
		default:
			a.Reason = whyMoved(&was, &is)
		}
		all = append(all, a)
	}
	return all
}

// degraded lists what is not as it is wanted, and since when.
func (in *Inspection) degraded(prior *Prior, now time.Time) {
	for _, d := range terms.Directions {
		ds, choice := in.Want.Directions[d], in.Choices[d]
		if ds == nil {
			continue
		}
		reasons := append([]string{}, ds.Params.Declined...)
		if choice.Degraded() {
			reasons = append(reasons, choice.Note)
		}
		choice.Since = time.Time{}
		if len(reasons) > 0 {
			choice.Since = now
			if prior != nil && !prior.Choices[d].Since.IsZero() {
				choice.Since = prior.Choices[d].Since
			}
		}
		in.Choices[d] = choice
		for _, why := range reasons {
			in.Degraded = append(in.Degraded, Degradation{Direction: d, Reason: why, Since: choice.Since})
		}
		for _, left := range []struct{ what, why string }{
			{"egress ceiling", ds.Params.NoCeiling}, {"ceiling of the group", ds.Params.NoGroupCeiling}, {"guard", ds.Params.NoGuard},
		} {
			if left.why != "" {
				in.Degraded = append(in.Degraded, Degradation{Direction: d, Reason: "no " + left.what + ": " + left.why})
			}
		}
	}
}

// TreeDiff names the first difference between a desired tree and what is on a
// device, "" if there is none, and says whether it can be mended by changing
// parameters in place.
func TreeDiff(want, got *shaping.Tree) (diff string, inPlace bool) {
	root := want.Qdiscs[0]
	if len(got.Qdiscs) == 0 {
		return "no root qdisc, want " + describeTree(&root, want), false
	}
	for i := range want.Qdiscs {
		w := &want.Qdiscs[i]
		g := findQdisc(got, w)
		if g == nil {
			return fmt.Sprintf("no %s under %s", describe(w), w.Parent), false
		}
		if w.Kind != g.Kind {
			return fmt.Sprintf("%s is %s, want %s", w.Parent, g.Kind, w.Kind), false
		}
		if d := qdiscDiff(w, g); d != "" && diff == "" {
			diff = d
		}
	}
	if len(got.Classes) != len(want.Classes) && root.Kind == shaping.KindHTB {
		return fmt.Sprintf("%d classes, want %d", len(got.Classes), len(want.Classes)), false
	}
	if want.Filter != nil && got.Filter == nil {
		return "classifier filter is missing", false
	}
	if len(got.Others) > 0 || want.Filter == nil && got.Filter != nil {
		return fmt.Sprintf("%s on podweir's queue, which can send packets past its classes", cmp.Or(strings.Join(got.Others, ", "), "a filter")), false
	}
	if diff == "" {
		diff = classesDiff(want, got)
	}
	return diff, diff == "" || changeable(want, got)
}

// changeable says that two trees of the same kinds differ only in what the kernel
// changes in place (package queue does it): HTB's default is fixed, prio would drop what
// is in a band that goes, and what another party put below podweir's root is not changed.
func changeable(want, got *shaping.Tree) bool {
	if len(got.Qdiscs) != len(want.Qdiscs) || len(got.Classes) != len(want.Classes) {
		return false
	}
	for i := range want.Qdiscs {
		w := &want.Qdiscs[i]
		g := *findQdisc(got, w)
		g.Handle = w.Handle
		if (w.Kind == shaping.KindPrio || w.Kind == shaping.KindHTB) && g != *w || w.Kind == shaping.KindPfifoFast && g.Extras != w.Extras {
			return false
		}
	}
	return !slices.ContainsFunc(want.Classes, func(w shaping.Class) bool {
		return !slices.ContainsFunc(got.Classes, func(g shaping.Class) bool { return g.Handle == w.Handle && g.Parent == w.Parent })
	})
}

// findQdisc finds by handle; pfifo_fast and fifos that the kernel numbers
// itself are found by their parent.
func findQdisc(t *shaping.Tree, w *shaping.Qdisc) *shaping.Qdisc {
	for i := range t.Qdiscs {
		g := &t.Qdiscs[i]
		if g.Parent == w.Parent && (w.Handle == 0 || g.Handle == w.Handle) {
			return g
		}
	}
	return nil
}

func qdiscDiff(w, g *shaping.Qdisc) string {
	// The kernel has no number for a bucket that takes longer to fill.
	bucket := w.Kind == shaping.KindTBF && !closeTo(w.Burst, g.Burst) && w.Rate.Duration(w.Burst) <= shaping.LongestBucket
	switch {
	case w.Rate != g.Rate:
		return fmt.Sprintf("limit of the queue (%s) is %v, want %v", w.Kind, g.Rate.BitRate(), w.Rate.BitRate())
	case bucket && g.Burst < w.Burst:
		return fmt.Sprintf("%s burst is %v, want %v: larger packets are lost; was the MTU raised?", w.Kind, g.Burst, w.Burst)
	case bucket:
		return fmt.Sprintf("%s burst is %v, want %v", w.Kind, g.Burst, w.Burst)
	case w.Segment != g.Segment:
		return fmt.Sprintf("%s cuts packets of more than %v, want %v", w.Kind, g.Segment, w.Segment)
	case w.Kind == shaping.KindBfifo && w.Limit != g.Limit:
		return fmt.Sprintf("%s limit is %v, want %v", w.Kind, g.Limit, w.Limit)
	case w.Kind == shaping.KindPrio && w.Bands != g.Bands:
		return fmt.Sprintf("prio has %d bands, want %d", g.Bands, w.Bands)
	case w.Kind == shaping.KindHTB && w.DefaultClass != g.DefaultClass:
		return fmt.Sprintf("htb default is %d, want %d", g.DefaultClass, w.DefaultClass)
	}
	return extrasDiff(string(w.Kind), &w.Extras, &g.Extras)
}

func extrasDiff(what string, w, g *shaping.Extras) string {
	switch {
	case w.PeakRate != g.PeakRate:
		return fmt.Sprintf("%s has a second limit of %v, want none", what, g.PeakRate.BitRate())
	case g.Resized:
		return what + " takes packets for larger or smaller than they are, want their size"
	case *w != *g:
		return fmt.Sprintf("%s charges packets %d bytes more, and at least %d, want neither", what, g.Overhead, g.MinPacket)
	}
	return ""
}

// closeTo allows for the kernel keeping a bucket as ticks of 64 ns: about
// 3 kB at 400 Gbit/s, and a part in a thousand below.
func closeTo(want, got units.Bytes) bool {
	slack := want/1000 + 64
	return got+slack >= want && got <= want+slack
}

func classesDiff(want, got *shaping.Tree) string {
	for i := range want.Classes {
		w := &want.Classes[i]
		at := slices.IndexFunc(got.Classes, func(g shaping.Class) bool { return g.Handle == w.Handle })
		if at < 0 {
			return fmt.Sprintf("no class %v", w.Handle)
		}
		g := &got.Classes[at]
		if g.Rate != w.Rate || g.Ceil != w.Ceil || g.Prio != w.Prio {
			return fmt.Sprintf("class %v has rate %v ceil %v prio %d, want %v, %v, %d",
				w.Handle, g.Rate.BitRate(), g.Ceil.BitRate(), g.Prio, w.Rate.BitRate(), w.Ceil.BitRate(), w.Prio)
		}
		if !closeTo(w.Burst, g.Burst) || !closeTo(w.CeilBurst, g.CeilBurst) {
			return fmt.Sprintf("class %v has burst %v and %v at its ceil, want %v and %v",
				w.Handle, g.Burst, g.CeilBurst, w.Burst, w.CeilBurst)
		}
		if d := extrasDiff("class "+w.Handle.String(), &w.Extras, &g.Extras); d != "" {
			return d
		}
	}
	return ""
}

// datapathDiff says in an operator's words how limits differ, "" if they do not.
func datapathDiff(want, got *image.Config) string {
	if *want == *got {
		return ""
	}
	var all []string
	rate := func(what string, w, g image.Rate) {
		if w != g {
			all = append(all, fmt.Sprintf("%s is %v, want %v", what, shaping.BitRate(g), shaping.BitRate(w)))
		}
	}
	rate("limit", want.TotalRate, got.TotalRate)
	rate("rate of light flows", want.LightRate, got.LightRate)
	rate("ceiling", want.CeilingRate, got.CeilingRate)
	rate("ceiling of the group", want.GroupRate, got.GroupRate)
	if want.Policy != got.Policy {
		all = append(all, fmt.Sprintf("policy is %v, want %v", terms.Policy(got.Policy), terms.Policy(want.Policy)))
	}
	if want.Observe != got.Observe {
		all = append(all, fmt.Sprintf("observed only is %v, want %v", got.Observe != 0, want.Observe != 0))
	}
	if want.SubnetsMode != got.SubnetsMode {
		all = append(all, "the subnets that are not limited differ")
	}
	if len(all) == 0 {
		all = append(all, "bursts, classes or thresholds of flows differ")
	}
	return strings.Join(all, ", ")
}

// describeTree names a tree by its root, and by its limit: that of a prio or an HTB is on a TBF below.
func describeTree(root *shaping.Qdisc, t *shaping.Tree) string {
	named := *root
	if i := slices.IndexFunc(t.Qdiscs, func(q shaping.Qdisc) bool { return q.Rate != 0 }); i >= 0 {
		named.Rate = t.Qdiscs[i].Rate
	}
	return describe(&named)
}

func describe(q *shaping.Qdisc) string {
	if q.Rate != 0 {
		return fmt.Sprintf("%s %s at %v", q.Kind, q.Handle, q.Rate.BitRate())
	}
	return fmt.Sprintf("%s %s", q.Kind, q.Handle)
}
