// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/workload"
)

// measured is how long a load runs.
const measured = 4 * time.Second

// traffic is what passed a pod.
type traffic struct{ workload.Traffic }

// load sends to a pod and lets it send, at the same time, from and to a peer on
// the other node, and counts what arrives while f runs.
func load(t *testing.T, p, peer *pod, f func(ctx context.Context) error) traffic {
	t.Helper()
	r, err := workload.Load{Pod: p.Pod, Peer: peer.Pod}.While(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return traffic{r}
}

// measure loads a pod for a while.
func measure(t *testing.T, p, peer *pod) traffic {
	t.Helper()
	return load(t, p, peer, wait(measured))
}

// wait does nothing for a time.
func wait(length time.Duration) func(context.Context) error { return workload.Wait(length) }

// holds fails the test unless both directions keep to their caps, in bits per
// second, and use them. 0 is no cap.
func (r traffic) holds(t *testing.T, what string, ingress, egress uint64) {
	t.Helper()
	for _, d := range r.Directions(ingress, egress) {
		if err := d.Err(); err != nil {
			t.Errorf("%s: %v; Mbit/s in each 100 ms: %.1f", what, err, workload.Tenths(d.Series))
		}
		t.Logf("%s: %s", what, d)
	}
}
