// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"slices"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
)

// A TCP sender in the pod that has nothing under way does not lose what it sends next, though
// its flow has more than its share: no answer would come that makes it try again, and it would
// wait for a timer of at least 200 ms.
func TestPrivilegedIdleSenderWaitsForNoTimer(t *testing.T) {
	const (
		capacity = 100 * mbit
		clients  = 16
		response = 60_000 // bytes: one for each client takes 77 ms of the cap
		timer    = 200 * time.Millisecond
		// A pause of the machine delays a response of each client, 1.3 % of all.
		mostLate = 0.02
	)
	t.Parallel()
	r := newRig(t)
	pod := shaped(t, r, capacity, map[string]any{})
	run, err := r.Lab.StartHTTP(t.Context(), lab.HTTPLoad{
		From: r.Client, To: &pod.Host, ResponseBytes: response, Concurrency: clients,
		Duration: 6 * time.Second, Timeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	took := got.Samples
	if len(took) < clients {
		t.Fatalf("only %d responses came", len(took))
	}
	first, _ := slices.BinarySearch(took, timer)
	late := 1 - float64(first)/float64(len(took))
	t.Logf("%d responses, half of them within %v; %.2f %% took %v or longer", len(took), got.Quantile(0.5), 100*late, timer)
	if late > mostLate {
		t.Errorf("%.2f %% of %d responses took %v or longer, want at most %.0f %%", 100*late, len(took), timer, 100*mostLate)
	}
}
