// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"cmp"
	"context"
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
