// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/mailbox"
)

// recordUnshaped has status and the doctor know of a pod that runs without its limit, or
// that it has it now. An attachment of no known pod is shown by its pins.
func (r *Reconciler) recordUnshaped(s *PodState, old *state) {
	switch {
	case s.UID == "":
	case s.NotLimited():
		old.unshaped = cmp.Or(old.unshaped, s.Since, s.At)
		r.cfg.Paths.Mail().RecordUnshaped(r.cfg.Log, &mailbox.Unshaped{
			Pod: s.Namespace + "/" + s.Name, UID: s.UID, Reason: s.Outcome.String(), Since: old.unshaped.UTC(), Error: text(s.Err),
		})
	case !old.unshaped.IsZero():
		r.cfg.Paths.Mail().ClearUnshaped(s.UID)
		old.unshaped = time.Time{}
	}
}

// cured removes the records of an attachment that could not be limited before. Whether one
// of no known pod has all limits that it should have is not known: a rate may be unread.
func (l *look) cured(id attach.ID) {
	if l.pod == nil {
		return
	}
	l.cfg.Paths.Mail().ClearFailure(id)
	l.clearFailures(id.IfName)
}

// clearFailures removes the records of an interface of the pod, also those of its former
// sandboxes: it has what it asks for now, which may be nothing. Of other interfaces it is
// not known what their networks ask for.
func (l *look) clearFailures(ifName string) {
	failures, err := l.cfg.Paths.Mail().Failures()
	if err != nil {
		l.cfg.Log.Error("failure records not read: status may show a failure that is cured", "pod", l.pod.Key(), "error", err)
	}
	for i := range failures {
		if f := &failures[i]; f.Pod == l.pod.Key() && f.ID.IfName == ifName {
			l.cfg.Paths.Mail().ClearFailure(f.ID)
		}
	}
}

// sweepFailures removes the records of pods that have ended or are gone: nothing calls DEL
// where the agent alone attaches pods. One that is younger than a pass may be of a pod that
// is being set up, which neither the API server nor the runtime has told of yet.
func (r *Reconciler) sweepFailures(ctx context.Context) {
	failures, err := r.cfg.Paths.Mail().Failures()
	if err != nil {
		r.cfg.Log.Error("failure records not read: those of pods that are gone stay", "error", err)
	}
	if len(failures) == 0 || !r.cfg.Pods.Current() {
		return
	}
	runs := make(map[string]bool)
	for _, p := range r.cfg.Pods.List() {
		runs[p.Key()] = runs[p.Key()] || !p.Finished
	}
	for i := range failures {
		f := &failures[i]
		running, listed := runs[f.Pod]
		if running || time.Since(f.Time) < r.cfg.Pass {
			continue
		}
		if !listed {
			if known, err := r.cfg.Sandboxes.Knows(ctx, f.ID.ContainerID); err != nil || known {
				continue
			}
		}
		r.cfg.Paths.Mail().ClearFailure(f.ID)
	}
}

// overdue makes a fault of a wait that lasts: the pod runs, as far as the API
// server knows, and has a limit that nobody holds it to.
func (l *look) overdue(now time.Time) {
	if !l.missing || l.pod == nil || !l.pod.Started || l.pod.Ending {
		return
	}
	l.Since = l.waitsSince(now)
	if left := l.cfg.Overdue - now.Sub(l.Since); left > 0 {
		l.queue.add(l.key, left)
		return
	}
	// The same words each time: it is one Event, however long it lasts.
	l.Err = fmt.Errorf("the pod runs without its limit: podweir has waited for its network for more than %v: %s", l.cfg.Overdue, l.Reason)
	l.Outcome, l.Reason = Overdue, ""
	l.warn(l.reasonOf(), l.Err.Error())
}

// waitsSince is since when the pod waits, now if it did not.
func (l *look) waitsSince(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.states[l.key]; s != nil && !s.Since.IsZero() {
		return s.Since
	}
	return now
}

// newcomersEvery is the time between two looks at the list of attachments, which takes
// some microseconds: what the API server does not tell of is looked after all the same.
const newcomersEvery = time.Second

// newcomers asks for a look at every attachment that came since the last pass and that no
// pod is known for: its pod started while the API server was out of reach, or it was made
// by hand.
func (r *Reconciler) newcomers(ctx context.Context) {
	tick := time.NewTicker(newcomersEvery)
	defer tick.Stop()
	for failed := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ids, err := r.cfg.Paths.Recorded(r.met)
		if err != nil && err.Error() != failed {
			r.cfg.Log.Warn("attachments not listed: new ones are looked at by full passes only", "error", err)
		}
		failed = text(err)
		for _, id := range ids {
			r.queue.add(key{id: id}, 0)
		}
	}
}

// met says that an attachment was looked at, or that its pod is known.
func (r *Reconciler) met(id attach.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, owned := r.owners[id]
	return owned || r.states[key{id: id}] != nil
}
