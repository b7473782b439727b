// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"fmt"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/mark"
)

const (
	mbit = 1_000_000
	gbit = 1000 * mbit
)

// judge measures a case and fails the test if a promise does not hold.
func judge(t *testing.T, r *Rig, c Case) {
	t.Helper()
	name := fmt.Sprintf("%dM/%s/%s", c.Cap/mbit, c.Direction, c.Load.Name)
	t.Run(name, func(t *testing.T) {
		got, err := r.Measure(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("worst second %.4f of the cap, excess %.0f bytes, used %.3f, unshaped %.0f Mbit/s, a processor away for %v",
			got.WorstShare(), got.Excess, got.Used, got.Carried/mbit, got.Away)
		if !got.Offered() {
			t.Log("not offered: the generator is slower than 1.2 times the cap")
			return
		}
		if err := got.Err(); err != nil {
			t.Error(err)
		}
	})
}

// The cap holds in any second while light flows start and stop, and one TCP
// flow uses it.
func TestPrivilegedCapHoldsAndIsUsed(t *testing.T) {
	r := newRig(t)
	for _, capacity := range []uint64{mbit, 10 * mbit, 100 * mbit, gbit} {
		t.Run(fmt.Sprintf("%dM", capacity/mbit), func(t *testing.T) {
			if capacity == mbit || capacity == gbit {
				mark.Nightly(t, "10M and 100M decide; these are the ends of what users set")
			}
			for _, d := range Directions {
				judge(t, r, Case{Cap: capacity, Direction: d, Load: TCP1, Light: true, Duration: 4 * time.Second})
				judge(t, r, Case{Cap: capacity, Direction: d, Load: UDP, Duration: 2500 * time.Millisecond})
			}
		})
	}
}

// The same for other kinds of load, at one cap.
func TestPrivilegedCapHoldsForEveryLoad(t *testing.T) {
	r := newRig(t)
	loads := []Load{TCP1BBR, TCP20, TCP6, UDP6}
	judged := func(d Direction, loads ...Load) {
		for _, load := range loads {
			// Long enough that a processor which is away for 20 ms is no matter.
			judge(t, r, Case{Cap: 100 * mbit, Direction: d, Load: load, Duration: 5 * time.Second})
		}
	}
	judged(Egress, loads[:2]...)
	judged(Ingress, loads[2:]...)
	t.Run("the other way", func(t *testing.T) {
		mark.Nightly(t, "each load was there once, in one direction")
		judged(Ingress, loads[:2]...)
		judged(Egress, loads[2:]...)
	})
}

// Floods that defeat shapers: an ECN mark is no limit for a sender that
// ignores it, every packet a new flow, small packets.
func TestPrivilegedFloodsStayWithinTheCap(t *testing.T) {
	r := newRig(t)
	for _, d := range Directions {
		for _, load := range []Load{UDPECT0, UDPPorts, UDPTiny} {
			judge(t, r, Case{Cap: 20 * mbit, Direction: d, Load: load, Duration: 2500 * time.Millisecond})
		}
	}
}
