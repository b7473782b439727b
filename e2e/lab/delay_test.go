// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/mark"
)

// TestPrivilegedDelay: a call over a delayed link loses no packet, and no answer
// comes before the delay has passed twice.
func TestPrivilegedDelay(t *testing.T) {
	mark.Nightly(t, "a load of the rig; no test of podweir has it")
	mark.Timed(t, "it judges rates or waits")
	const delay, packets = 30 * time.Millisecond, 100
	l := newTestLabWith(t, Options{Delay: delay})
	pod, client := mustPod(t, l)
	calls, err := l.StartCalls(t.Context(), Calls{
		From: client, To: &pod.Host, Flows: 1, PacketBytes: 1400, PerSecond: 200, Duration: packets * time.Second / 200,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := calls.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Samples) < packets/2 || got.Failed() > 0 {
		t.Fatalf("%d calls, %d without an answer; want at least %d, all answered", len(got.Samples), got.Failed(), packets/2)
	}
	if least := got.Samples[0]; least < 2*delay {
		t.Errorf("an answer after %v, want none before %v", least, 2*delay)
	}
}
