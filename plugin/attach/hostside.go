// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// errNoHostSide means that a direction cannot be moved to the host side.
var errNoHostSide = errors.New("the host side cannot hold this direction")

// hostSided is a limit that is policed at the host side's hook. It has no queue, and
// holds what the pod cannot take away.
func hostSided(l *shaping.Limit, tcx bool) *shaping.Limit {
	out := *l
	out.Mode, out.Queue, out.Place = terms.ModeClsactHostSide, terms.QueueNone, terms.PlaceAuto
	if tcx {
		out.Mode = terms.ModeTCXHostSide
	}
	return &out
}

const hostSideNote = "policed on the host side for now: what kept the limit in the pod was taken away again and again"

// decideHostSide decides about a direction that is to be policed on the host side.
// Only egress is moved: ingress stands there already, or on an ifb because packets go
// past the host side.
func decideHostSide(req *Request, obs *Observed, d terms.Direction, prior Choice) (*DirectionState, Choice, error) {
	if d != terms.Egress || req.Facts.EgressPastHost || !obs.Device(terms.SideHost).Exists {
		return nil, prior, errNoHostSide
	}
	if !prior.HostSide {
		prior = Choice{MadeClsact: prior.MadeClsact}
	}
	moved := *req
	moved.Config = withLimit(req.Config, d, hostSided(req.Config.Limit(d), req.TCX))
	state, choice, err := decideAs(&moved, obs, d, prior)
	if err != nil {
		return nil, prior, err
	}
	choice.HostSide, state.HostSide = true, true
	state.Params.Notes = append(state.Params.Notes, hostSideNote)
	return state, choice, nil
}

// hostSidesOf are the directions that an earlier run moved to the host side.
func hostSidesOf(prior *Record) map[terms.Direction]bool {
	all := make(map[terms.Direction]bool)
	if prior == nil {
		return all
	}
	for _, d := range terms.Directions {
		if prior.Choices[d].HostSide {
			all[d] = true
		}
	}
	return all
}

// hostSides are the directions to have on the host side now.
func (e *Engine) hostSides(id ID, prior *Record) map[terms.Direction]bool {
	all := hostSidesOf(prior)
	if e.HostSide == nil || prior == nil {
		return all
	}
	for _, d := range terms.Directions {
		if e.HostSide(id, d, all[d]) {
			all[d] = true
		} else {
			delete(all, d)
		}
	}
	return all
}

// asksAnew says whether the answer to [Engine.HostSide] is another one by now.
func (e *Engine) asksAnew(req *Request, id ID, prior *Record) bool {
	now := e.hostSides(id, prior)
	other := !maps.Equal(now, req.HostSide)
	req.HostSide = now
	return other
}

// drifted tells what differs for no reason of ours, and says whether anything does.
func (e *Engine) drifted(id ID, prior, rec *Record, gone []terms.Direction, plan []Action) bool {
	if e.Drifted == nil || prior == nil || !reflect.DeepEqual(prior.Config, rec.Config) {
		return false
	}
	left := slices.DeleteFunc(slices.Clone(plan), func(a Action) bool {
		return slices.Contains(gone, a.Direction) || a.OtherBuild || ours(a.Direction, plan)
	})
	if len(left) == 0 {
		return false
	}
	e.Drifted(id, left)
	return true
}

// ours says that a direction gets a slot: with another release, or because another way
// is taken. What else differs is due to that.
func ours(d terms.Direction, plan []Action) bool {
	return slices.ContainsFunc(plan, func(a Action) bool {
		return a.Direction == d && a.Kind == LoadDataplane
	})
}

// InPod says that what the step puts back was in the pod's namespace, within reach of
// a process in the pod that has CAP_NET_ADMIN.
func (a *Action) InPod() bool {
	switch a.Kind {
	case MakeIFB, AttachGuard, AttachRedirect:
		return true
	case BuildTree, ChangeTree, ReplaceClassifier, AttachHook:
		return a.State != nil && a.State.Params.Side != terms.SideHost
	default:
		return false
	}
}
