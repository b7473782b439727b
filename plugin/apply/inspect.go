// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply

import (
	"reflect"
	"slices"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Inspect looks at the interface of a record as it is now. It takes no lock and
// changes nothing. The error wraps [ErrGone] if the interface is not there any more,
// or another one is in its place.
func (e *Executor) Inspect(r *Record) (*attach.Inspection, error) {
	iface, err := e.Refind(r)
	if err != nil {
		return nil, err
	}
	return e.look(&r.Config, iface, r)
}

// look is inspect for an attachment that stays as it is requested.
func (e *Executor) look(cfg *shaping.Config, iface attach.Interface, prior *Record) (*attach.Inspection, error) {
	rec := *prior
	rec.Interface, rec.Config = iface, *cfg
	return e.inspect(&rec, prior, nil)
}

// inspect compares an interface with what a record asks for; prior is the record of
// an earlier run, nil if there is none, and former that of the attachment that the interface is
// taken over from. Beside an error about what is wanted it
// returns what was observed.
func (e *Executor) inspect(rec, prior, former *Record) (*attach.Inspection, error) {
	facts, tcx, err := e.kernel.Facts(rec.Interface)
	if err != nil {
		return nil, err
	}
	var before *attach.Prior
	if prior != nil {
		rec.Choices = prior.Choices // they say where to look
		before = &attach.Prior{Config: &prior.Config, Choices: prior.Choices}
	}
	obs, err := e.kernel.Observe(rec)
	if err != nil {
		return nil, err
	}
	facts.Namespace = rec.Namespace()
	req := &attach.Request{
		Interface: rec.Interface, Config: &rec.Config, Facts: facts, TCX: tcx,
		ReplaceQdisc: rec.ReplaceQdisc, Random: e.random, Strict: rec.Strict,
	}
	if former != nil {
		req.Former = former.Choices
	}
	return attach.Inspect(req, obs, before, e.now())
}

// drifted tells what differs for no reason of ours.
func (e *Executor) drifted(id attach.ID, prior, rec *Record, in *attach.Inspection) {
	if e.Drifted == nil || prior == nil || !reflect.DeepEqual(prior.Config, rec.Config) {
		return
	}
	left := slices.DeleteFunc(slices.Clone(in.Steps), func(a attach.Action) bool {
		return slices.Contains(in.Remade, a.Direction) || a.OtherBuild || in.Observed.Left[a.Direction] || ours(a.Direction, in.Steps)
	})
	if len(left) > 0 {
		e.Drifted(id, left)
	}
}

// ours says that a direction gets a slot: with another release, or because another way
// is taken. What else differs is due to that.
func ours(d terms.Direction, plan []attach.Action) bool {
	return slices.ContainsFunc(plan, func(a attach.Action) bool {
		return a.Direction == d && a.Kind == attach.LoadDataplane
	})
}
