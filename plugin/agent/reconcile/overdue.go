// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"fmt"
	"time"
)

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
