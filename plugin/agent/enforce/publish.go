// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/terms"
)

// publish keeps what is known for metrics, status and doctor.
func (w *Watcher) publish(pods []reconcile.PodState) {
	var states []mailbox.Enforced
	var held []mailbox.Held
	var told []mailbox.Unenforced
	var reached []mailbox.Reached
	for i := range pods {
		s := &pods[i]
		states = append(states, w.statesOf(s)...)
		for j := range s.Limits {
			l := &s.Limits[j]
			d := w.directions[keyOf(l)]
			if one := w.toldOf(s, l, d); one.Reason != "" {
				told = append(told, one)
			}
			if d == nil {
				continue
			}
			namespace, pod := names(s, l)
			held = append(held, mailbox.Held{Namespace: namespace, Pod: pod, Interface: l.Interface.PodName, Direction: l.Direction.Is, Time: d.held})
			if r := &d.verdict.Reached; r.Known {
				one := mailbox.Reached{Limit: keyOf(l), Reached: terms.Reached{HeldShare: new(r.LastMinute)}}
				if r.Now {
					one.AtLimitSince = w.clock.At(r.Since)
				}
				reached = append(reached, one)
			}
		}
	}
	// A sandbox that was replaced may linger, and a pod may have two interfaces: the
	// worst of them is told, once.
	states = slices.CompactFunc(worstFirst(states), func(a, b mailbox.Enforced) bool {
		return a.Namespace == b.Namespace && a.Pod == b.Pod && a.Direction == b.Direction
	})
	held = slices.CompactFunc(longestFirst(held), func(a, b mailbox.Held) bool {
		a.Time, b.Time = 0, 0
		return a == b
	})
	w.mu.Lock()
	w.states, w.held = states, held
	w.mu.Unlock()
	emptied := w.emptied()
	if emptied || !reflect.DeepEqual(w.told, told) {
		w.told = told
		w.cfg.Paths.Mail().RecordUnenforced(w.cfg.Log, told)
	}
	if emptied {
		w.recordPast()
		for i := range pods {
			if pods[i].NotLimited() {
				w.cfg.Pods.LookAt(&pods[i]) // which records it
			}
		}
	}
	w.recordReached(reached)
}

// emptied says that what was recorded before is not there any more: podweir's directory under /run may be emptied at any
// time.
func (w *Watcher) emptied() bool {
	watched, err := w.cfg.Paths.Mail().Watched()
	return w.recorded && err == nil && !watched
}

// recordReached leaves a record for status. That it cannot be is logged once.
func (w *Watcher) recordReached(all []mailbox.Reached) {
	if reflect.DeepEqual(w.reached, all) && w.cfg.Paths.Mail().TouchReached() == nil {
		return
	}
	err := w.cfg.Paths.Mail().RecordReached(all)
	if err != nil && !w.unwritten {
		w.cfg.Log.Error("record of limits that are reached not written", "error", err)
	}
	w.reached, w.unwritten, w.recorded = all, err != nil, err == nil
}

// worstFirst sorts by pod and direction, and puts what is not enforced before what is.
func worstFirst(states []mailbox.Enforced) []mailbox.Enforced {
	slices.SortStableFunc(states, func(a, b mailbox.Enforced) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), cmp.Compare(a.Direction, b.Direction),
			cmp.Compare(rank(a), rank(b)))
	})
	return states
}

func rank(s mailbox.Enforced) int {
	switch {
	case !s.Enforced:
		return 0
	case s.Reason != "":
		return 1
	default:
		return 2
	}
}

// longestFirst sorts by names, and puts the longest time of those with the same first.
func longestFirst(held []mailbox.Held) []mailbox.Held {
	slices.SortFunc(held, func(a, b mailbox.Held) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Interface, b.Interface),
			cmp.Compare(a.Direction, b.Direction), cmp.Compare(b.Time, a.Time))
	})
	return held
}

// names are those of the pod, or of an attachment that was made by hand.
func names(s *reconcile.PodState, l *reconcile.KeptLimit) (namespace, pod string) {
	if s.Name == "" {
		return "", l.ID.ContainerID
	}
	return s.Namespace, s.Name
}

// statesOf are the states of one pod: of its limits, and of those that it asks for and
// has not.
func (w *Watcher) statesOf(s *reconcile.PodState) []mailbox.Enforced {
	var all []mailbox.Enforced
	known := make(map[terms.Direction]bool)
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.Stale {
			continue // what holds now is not known
		}
		known[l.Direction.Is] = true
		namespace, pod := names(s, l)
		one := mailbox.Enforced{Namespace: namespace, Pod: pod, Direction: l.Direction.Is, Enforced: true}
		if l.Observed() {
			one.Reason, one.Enforced = ReasonObserve, false
		} else if fought(s, l) != nil {
			one.Reason, one.Enforced = string(mailbox.ReasonTampered), l.Ceiling
		}
		if d := w.directions[keyOf(l)]; d != nil && d.exceeded() {
			one.Enforced = false
			one.Reason = cmp.Or(one.Reason, string(mailbox.ReasonExceeded))
		}
		all = append(all, one)
	}
	told, _ := s.Told()
	if told.Enforced() || told == reconcile.Waiting {
		return all
	}
	for _, d := range s.Asked {
		if known[d] && told == reconcile.Invalid {
			continue // it is the other direction that cannot be read
		}
		all = append(all, mailbox.Enforced{Namespace: s.Namespace, Pod: s.Name, Direction: d, Reason: told.String()})
	}
	return all
}

// fought is what takes a limit away again and again, nil if nothing does.
func fought(s *reconcile.PodState, l *reconcile.KeptLimit) *reconcile.Tampering {
	i := slices.IndexFunc(s.Tampered, func(t reconcile.Tampering) bool { return t.ID == l.ID && t.Direction == l.Direction.Is })
	if i < 0 {
		return nil
	}
	return &s.Tampered[i]
}

// toldOf is what is wrong with a limit, without a reason if nothing is.
func (w *Watcher) toldOf(s *reconcile.PodState, l *reconcile.KeptLimit, d *watch) mailbox.Unenforced {
	one := mailbox.Unenforced{ID: l.ID, Pod: s.Namespace + "/" + s.Name, Interface: l.Interface.PodName, Limit: l.Limit}
	if t := fought(s, l); t != nil {
		one.Reason, one.Since = mailbox.ReasonTampered, w.clock.Of(t.Since)
		one.Likely, one.Held = mailbox.Likely{Cause: mailbox.CauseTaken, TakenBy: t.By}, l.Ceiling
	}
	if d != nil && d.exceeded() {
		one.Held, one.Carried = false, d.carried
		if one.Reason == "" {
			one.Reason, one.Likely = mailbox.ReasonExceeded, d.cause
			one.Since = w.clock.At(d.since)
		}
	}
	return one
}
