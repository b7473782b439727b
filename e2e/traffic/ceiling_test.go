// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// What a process in the pod sends past its queue, or after it took the queue away,
// does not get past the ceiling. Without one it does, so that the test sees it.
func TestPrivilegedCeiling(t *testing.T) {
	const capacity = 10 * mbit
	// What a second may hold from one second after the start: 1.03 of the cap and
	// 60 ms of it.
	const most = capacity * (1.03 + 0.06) / 8
	r := newRig(t)
	without := shaped(t, r, capacity, map[string]any{"egressCeiling": "off"})
	for _, tt := range []struct {
		name   string
		keys   map[string]any
		load   Load
		break_ []string
	}{
		{name: "past the queue", load: UDPPast},
		{name: "past the queue of one band", keys: map[string]any{"policy": "flat"}, load: UDPPast},
		{
			name: "without queue and programs", load: Load{Name: "UDP 50x", Payload: fullPayload, Times: 50},
			break_: []string{"sh", "-c", "tc qdisc del dev eth0 clsact; tc qdisc del dev eth0 root 2>/dev/null || true"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := shaped(t, r, capacity, tt.keys)
			if got := worstSecond(t, pod, tt.load, capacity, tt.break_); got > most {
				t.Errorf("a second held %.3f of the cap, want at most %.3f", 8*got/capacity, 8*most/capacity)
			}
			if got := worstSecond(t, without, tt.load, capacity, tt.break_); got < 5*most {
				t.Errorf("without a ceiling a second held %.3f of the cap: the load is not what it shall be", 8*got/capacity)
			}
		})
	}
}

// worstSecond is what the receiver got in the worst second, in bytes, from one
// second after a load began. Before that the pod does something to itself.
func worstSecond(t *testing.T, pod *Target, load Load, capacity uint64, first []string) float64 {
	t.Helper()
	if first != nil {
		err := pod.Netns.Do(func() error {
			out, err := exec.CommandContext(t.Context(), first[0], first[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%v: %w: %s", first, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	offer, err := pod.Start(t.Context(), Egress, load, capacity, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := offer.Wait(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	wire, err := pod.Wire(Egress, offer.Started+time.Second, min(offer.Until, wiremeter.Now()))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.3f of the cap in the worst second", 8*float64(wire.Worst(time.Second))/float64(capacity))
	return float64(wire.Worst(time.Second))
}
