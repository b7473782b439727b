// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"cmp"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
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
	// error wraps [ErrHookTaken].
	Unheld error

	// Choices are to be recorded before the first step is taken.
	Choices Choices
	// Before are the choices of the earlier run, or what is presumed without one.
	Before Choices
	// Remade are the directions that are torn down and made again, Steps the plan without
	// their end.
	Remade []terms.Direction
	Steps  []Action

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
	if prior == nil {
		in.Before = Presume(obs)
		req.Prior = in.Before
	} else {
		in.Before = prior.Choices
		in.Remade = moved(prior.Config, req.Config)
		without(obs, prior.Choices, in.Remade)
		req.Prior = keep(prior.Choices, in.Remade, req.Config)
	}
	if err := in.decide(prior); err != nil {
		return in, err
	}
	in.degraded(prior, now)
	return in, nil
}

// decide is [Decide], once more without what is made again.
func (in *Inspection) decide(prior *Prior) error {
	want, choices, err := Decide(in.request, in.Observed)
	if other := switched(prior, choices, in.Remade); err == nil && len(other) > 0 {
		without(in.Observed, prior.Choices, other)
		in.Remade = append(in.Remade, other...)
		in.request.Prior = keep(prior.Choices, in.Remade, in.request.Config)
		want, choices, err = Decide(in.request, in.Observed)
	}
	if err != nil {
		return err
	}
	in.Want, in.Choices, in.Unheld = want, choices, want.unheld(in.Observed)
	in.Steps = Plan(want, in.Observed)
	for d, is := range choices {
		was := in.Before[d]
		first := slices.IndexFunc(in.Steps, func(a Action) bool { return a.Direction == d })
		if was.Place != is.Place && first >= 0 {
			in.Steps[first].Reason = whyMoved(&was, &is) + ": " + in.Steps[first].Reason
		}
	}
	in.Plan = append(in.remakes(prior), in.Steps...)
	return nil
}

// whyMoved says why a direction is limited in another way than before.
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
		a := Action{Kind: TearDown, Direction: d, State: in.Want.Directions[d]}
		was, is := prior.Choices[d], in.Choices[d]
		switch {
		case a.State == nil:
			a.Reason = "attached, but no limit is requested"
		case in.request.Config.Observe != prior.Config.Observe:
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
