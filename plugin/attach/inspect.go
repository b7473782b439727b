// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"cmp"
	"time"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Inspection is one look at one interface of an attachment. ADD, CHECK, the agent,
// repair, status, doctor and metrics all work from it.
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
	// error wraps [ErrHookTaken].
	Unheld error

	choices Choices
	// before are the choices of the record, or what is presumed without one.
	before Choices
	// gone are the directions that are made again, steps the plan without their end.
	gone    []terms.Direction
	steps   []Action
	request *Request
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

// Inspect looks at the interface of a record as it is now. It takes no lock and
// changes nothing. The error wraps [ErrGone] if the interface is not there any more,
// or another one is in its place.
func (e *Engine) Inspect(r *Record) (*Inspection, error) {
	iface, err := e.Refind(r)
	if err != nil {
		return nil, err
	}
	return e.look(&r.Config, iface, r)
}

// look is inspect for an attachment that stays as it is requested.
func (e *Engine) look(cfg *shaping.Config, iface Interface, prior *Record) (*Inspection, error) {
	rec := *prior
	rec.Interface, rec.Config = iface, *cfg
	return e.inspect(&rec, prior)
}

// inspect compares an interface with what a record asks for; prior is the record of
// an earlier run, nil if there is none. Beside an error about what is wanted it
// returns what was observed.
func (e *Engine) inspect(rec, prior *Record) (*Inspection, error) {
	facts, tcx, err := e.interfaces.Facts(rec.Interface)
	if err != nil {
		return nil, err
	}
	if prior != nil {
		rec.Choices = prior.Choices // they say where to look
	}
	obs, err := e.kernel.Observe(rec)
	if err != nil {
		return nil, err
	}
	if why := cmp.Or(obs.NoIFB, noRedirect(&rec.Config, obs)); why != "" {
		facts.IFB, facts.NoIFB = false, why
	}
	facts.Pacing = obs.Pacing != nil
	facts.Namespace = rec.Namespace()
	in := &Inspection{Interface: rec.Interface, Observed: obs, request: &Request{
		Interface: rec.Interface, Config: &rec.Config, Facts: facts, TCX: tcx,
		ReplaceQdisc: rec.ReplaceQdisc, Random: e.random, Strict: rec.Strict,
	}}
	if obs.redirects() {
		in.Starved = obs.starved()
	}
	if prior == nil {
		in.before = Presume(obs)
		in.request.Prior = in.before
	} else {
		in.before = prior.Choices
		in.gone = moved(&prior.Config, &rec.Config)
		without(obs, prior, in.gone)
		in.request.Prior = keep(prior.Choices, in.gone, &rec.Config)
	}
	if err := in.decide(prior); err != nil {
		return in, err
	}
	in.degraded(prior, e.now())
	return in, nil
}

// decide is [Decide], once more without what is made again.
func (in *Inspection) decide(prior *Record) error {
	want, choices, err := Decide(in.request, in.Observed)
	if other := switched(prior, choices, in.gone); err == nil && len(other) > 0 {
		without(in.Observed, prior, other)
		in.gone = append(in.gone, other...)
		in.request.Prior = keep(prior.Choices, in.gone, in.request.Config)
		want, choices, err = Decide(in.request, in.Observed)
	}
	if err != nil {
		return err
	}
	in.Want, in.choices, in.Unheld = want, choices, want.unheld(in.Observed)
	in.steps = Plan(want, in.Observed)
	in.Plan = append(in.remakes(prior), in.steps...)
	return nil
}

// remakes says why directions are made again.
func (in *Inspection) remakes(prior *Record) []Action {
	var all []Action
	for _, d := range in.gone {
		a := Action{Kind: TearDown, Direction: d, State: in.Want.Directions[d]}
		was, is := prior.Choices[d], in.choices[d]
		switch {
		case a.State == nil:
			a.Reason = "attached, but no limit is requested"
		case in.request.Config.Observe != prior.Config.Observe:
			a.Reason = "the limit is to be enforced, and was observed only"
			if in.request.Config.Observe {
				a.Reason = "the limit is to be observed only, and was enforced"
			}
		case is.Degraded() && is.Note != was.Note:
			a.Reason = is.Note
		case was.Degraded() && !is.Degraded():
			a.Reason = "what is wanted is available again; it was not: " + was.Note
		default:
			a.Reason = "another way of limiting it"
		}
		all = append(all, a)
	}
	return all
}

// degraded lists what is not as it is wanted, and since when.
func (in *Inspection) degraded(prior *Record, now time.Time) {
	for _, d := range terms.Directions {
		ds, choice := in.Want.Directions[d], in.choices[d]
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
		in.choices[d] = choice
		for _, why := range reasons {
			in.Degraded = append(in.Degraded, Degradation{Direction: d, Reason: why, Since: choice.Since})
		}
		if why := ds.Params.NoCeiling; why != "" {
			in.Degraded = append(in.Degraded, Degradation{Direction: d, Reason: "no egress ceiling: " + why})
		}
		if why := ds.Params.NoGroupCeiling; why != "" {
			in.Degraded = append(in.Degraded, Degradation{Direction: d, Reason: "no ceiling of the group: " + why})
		}
		if why := ds.Params.NoGuard; why != "" {
			in.Degraded = append(in.Degraded, Degradation{Direction: d, Reason: "no guard: " + why})
		}
	}
}

func (e *Engine) now() time.Time {
	if e.Now != nil {
		return e.Now()
	}
	return time.Now()
}
