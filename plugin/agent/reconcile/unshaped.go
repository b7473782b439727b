// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"cmp"
	"time"

	"github.com/podweir/podweir/plugin/engine"
)

// recordUnshaped has status and the doctor know of a pod that runs without its limit, or
// that it has it now. An attachment of no known pod is shown by its pins.
func (r *Reconciler) recordUnshaped(s *PodState, old *state) {
	switch {
	case s.UID == "":
	case s.NotLimited():
		old.unshaped = cmp.Or(old.unshaped, s.Since, s.At)
		r.cfg.Paths.RecordUnshaped(r.cfg.Log, &engine.Unshaped{
			Pod: s.Namespace + "/" + s.Name, UID: s.UID, Reason: s.Outcome.String(), Since: old.unshaped.UTC(), Error: text(s.Err),
		})
	case !old.unshaped.IsZero():
		r.cfg.Paths.ClearUnshaped(s.UID)
		old.unshaped = time.Time{}
	}
}
