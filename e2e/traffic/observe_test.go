// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
)

// A pod whose limit is observed only has the full speed, and what exceeds the limit is
// counted. The same connection is held to the limit as soon as that is enforced, and is
// free again afterwards.
func TestPrivilegedObservedPodIsFreeUntilItIsLimited(t *testing.T) {
	const capacity = 10 * mbit
	r := newRig(t)
	pod := shaped(t, r, capacity, map[string]any{"enforce": "observe"})
	d := Egress
	// One connection for all of it, however long that takes: nothing is carried if it breaks.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := pod.Start(ctx, d, TCP1, capacity, time.Minute); err != nil {
		t.Fatal(err)
	}
	free := func(when string) {
		t.Helper()
		testutil.Eventually(t, 10*time.Second, when+" the pod has many times its limit", func() bool {
			now := wiremeter.Now()
			s, err := pod.Wire(d, now-500*time.Millisecond, now)
			return err == nil && s.BitsPerSec() > 10*capacity
		})
	}
	free("observed,")
	for _, name := range []string{"would-wait", "would-drop"} {
		if n := egressCounter(t, pod, name); n == 0 {
			t.Errorf("no packet is counted as %s", name)
		}
	}
	if err := set(t.Context(), r, pod, "--enforce", "limit"); err != nil {
		t.Fatal(err)
	}
	limited := wiremeter.Now()
	testutil.Eventually(t, 10*time.Second, "a second and a half is over", func() bool { return wiremeter.Now() > limited+1500*time.Millisecond })
	series, err := pod.Wire(d, limited+500*time.Millisecond, limited+1500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f Mbit/s with the limit", series.BitsPerSec()/mbit)
	if got := series.BitsPerSec() / capacity; got < 0.5 || got > 1.05 {
		t.Errorf("%.3f of the limit in the second that begins half a second after it is enforced", got)
	}
	if err := set(t.Context(), r, pod, "--clear"); err != nil {
		t.Fatal(err)
	}
	free("observed again,")
}
