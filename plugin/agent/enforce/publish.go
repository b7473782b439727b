// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/terms"
)

// publish keeps what is known for metrics, status and doctor.
func (w *Watcher) publish(pods []reconcile.PodState) {
	var states []State
	var held []Held
	var told []engine.Unenforced
	var reached []engine.Reached
	for i := range pods {
		s := &pods[i]
		states = append(states, w.statesOf(s)...)
		held = append(held, w.heldOf(s)...)
		told = append(told, w.toldOf(s)...)
		reached = append(reached, w.reachedOf(s)...)
	}
	// A sandbox that was replaced may linger, and a pod may have two interfaces: the
	// worst of them is told, once.
	states = slices.CompactFunc(worstFirst(states), func(a, b State) bool {
		return a.Namespace == b.Namespace && a.Pod == b.Pod && a.Direction == b.Direction
	})
	held = slices.CompactFunc(longestFirst(held), func(a, b Held) bool { return a.names() == b.names() })
	w.mu.Lock()
	w.states, w.held = states, held
	w.mu.Unlock()
	if !reflect.DeepEqual(w.told, told) {
		w.told = told
		w.cfg.Paths.RecordUnenforced(w.cfg.Log, told)
	}
	w.recordReached(reached)
}

// recordReached leaves a record for status. That it cannot be is logged once.
func (w *Watcher) recordReached(all []engine.Reached) {
	if slices.Equal(w.reached, all) && w.cfg.Paths.TouchReached() == nil {
		return
	}
	err := w.cfg.Paths.RecordReached(all)
	if err != nil && !w.unwritten {
		w.cfg.Log.Error("record of limits that are reached not written", "error", err)
	}
	w.reached, w.unwritten = all, err != nil
}

// worstFirst sorts by pod and direction, and puts what is not enforced before what is.
func worstFirst(states []State) []State {
	slices.SortStableFunc(states, func(a, b State) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), cmp.Compare(a.Direction, b.Direction),
			cmp.Compare(rank(a), rank(b)))
	})
	return states
}

func rank(s State) int {
	switch {
	case !s.Enforced:
		return 0
	case s.Reason != "":
		return 1
	default:
		return 2
	}
}

func (h *Held) names() [3]string {
	return [3]string{h.Namespace, h.Pod, h.Interface + " " + h.Direction.String()}
}

// longestFirst sorts by names, and puts the longest time of those with the same first.
func longestFirst(held []Held) []Held {
	slices.SortFunc(held, func(a, b Held) int {
		x, y := a.names(), b.names()
		return cmp.Or(slices.Compare(x[:], y[:]), cmp.Compare(b.Time, a.Time))
	})
	return held
}

// heldOf are the times of one pod.
func (w *Watcher) heldOf(s *reconcile.PodState) []Held {
	var all []Held
	for i := range s.Limits {
		l := &s.Limits[i]
		if d := w.directions[keyOf(l)]; d != nil {
			namespace, pod := names(s, l)
			all = append(all, Held{Namespace: namespace, Pod: pod, Interface: l.Interface.PodName, Direction: l.Direction, Time: d.held})
		}
	}
	return all
}

// reachedOf are the limits of one pod that have been watched long enough.
func (w *Watcher) reachedOf(s *reconcile.PodState) []engine.Reached {
	var all []engine.Reached
	for i := range s.Limits {
		l := &s.Limits[i]
		d := w.directions[keyOf(l)]
		if d == nil || !d.verdict.Reached.Known {
			continue
		}
		one := engine.Reached{ID: l.ID, Interface: l.Interface.PodName, Direction: terms.Name(l.Direction), LastMinute: d.verdict.Reached.LastMinute}
		if d.verdict.Reached.Now {
			one.Since = w.start.Add(d.verdict.Reached.Since).UTC().Round(time.Second)
		}
		all = append(all, one)
	}
	return all
}

// names are those of the pod, or of an attachment that was made by hand.
func names(s *reconcile.PodState, l *reconcile.Limit) (namespace, pod string) {
	if s.Name == "" {
		return "", l.ID.ContainerID
	}
	return s.Namespace, s.Name
}

// statesOf are the states of one pod: of its limits, and of those that it asks for and
// has not.
func (w *Watcher) statesOf(s *reconcile.PodState) []State {
	var all []State
	known := false
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.Stale {
			continue // what holds now is not known
		}
		known = true
		namespace, pod := names(s, l)
		one := State{Namespace: namespace, Pod: pod, Direction: l.Direction, Enforced: true}
		if l.Observe {
			one.Reason, one.Enforced = ReasonObserve, false
		} else if fought(s, l) {
			one.Reason, one.Enforced = string(engine.ReasonTampered), l.Ceiling || l.HostSide
		}
		if d := w.directions[keyOf(l)]; d != nil && d.exceeded() {
			one.Enforced = false
			one.Reason = cmp.Or(one.Reason, string(engine.ReasonExceeded))
		}
		all = append(all, one)
	}
	if !known && unshaped(s.Outcome) {
		for _, d := range s.Asked {
			all = append(all, State{Namespace: s.Namespace, Pod: s.Name, Direction: d, Reason: s.Outcome.String()})
		}
	}
	return all
}

func unshaped(o reconcile.Outcome) bool {
	return !o.Enforced() && o != reconcile.Waiting
}

func fought(s *reconcile.PodState, l *reconcile.Limit) bool {
	return slices.ContainsFunc(s.Tampered, func(t reconcile.Tampering) bool { return t.ID == l.ID && t.Direction == l.Direction })
}

// toldOf are the records of one pod.
func (w *Watcher) toldOf(s *reconcile.PodState) []engine.Unenforced {
	var all []engine.Unenforced
	for i := range s.Limits {
		l := &s.Limits[i]
		one := engine.Unenforced{
			ID: l.ID, Pod: s.Namespace + "/" + s.Name, Interface: l.Interface.PodName, Direction: terms.Name(l.Direction),
			LimitBitsPerSecond: uint64(l.Rate),
		}
		for j := range s.Tampered {
			if t := &s.Tampered[j]; t.ID == l.ID && t.Direction == l.Direction {
				one.Reason, one.Since = engine.ReasonTampered, t.Since.UTC().Round(time.Second)
				one.TakenBy, one.Cause = t.By, t.String()
				one.Held = l.Ceiling || l.HostSide
			}
		}
		if d := w.directions[keyOf(l)]; d != nil && d.exceeded() {
			one.Held, one.CarriedBitsPerSecond = false, uint64(d.carried)
			if one.Reason == "" {
				one.Reason, one.TakenBy, one.Cause = engine.ReasonExceeded, d.cause.takenBy, d.cause.text
				one.Since = w.start.Add(d.since).UTC().Round(time.Second)
			}
		}
		if one.Reason != "" {
			all = append(all, one)
		}
	}
	return all
}
