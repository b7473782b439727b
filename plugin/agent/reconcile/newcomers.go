// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"time"

	"github.com/podweir/podweir/plugin/attach"
)

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
