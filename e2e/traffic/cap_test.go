// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"fmt"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	mbit = 1_000_000
	gbit = 1000 * mbit
)

// judge measures a case on a rig of its own and fails the test if a promise does not
// hold.
func judge(t *testing.T, c Case) {
	t.Helper()
	t.Run(fmt.Sprintf("%dM/%s/%s", c.Cap/mbit, c.Direction, c.Load.Name), func(t *testing.T) {
		beside(t, c.Cap)
		got := must.Get(newRig(t).Measure(t.Context(), c))(t)
		t.Logf("worst second %.4f of the cap, excess %.0f bytes, used %.3f, unshaped %.0f Mbit/s, a processor away for %v",
			got.WorstShare(), got.Excess, got.Used, got.Carried/mbit, got.Away)
		if !got.Offered() {
			t.Log("not offered: the generator is slower than 1.2 times the cap")
			return
		}
		must.OK(t, got.Err())
	})
}

// The cap holds in any second while light flows start and stop, and one TCP
// flow uses it.
func TestPrivilegedCapHoldsAndIsUsed(t *testing.T) {
	judged := func(t *testing.T, capacity uint64) {
		t.Helper()
		for _, d := range Directions {
			judge(t, Case{Cap: capacity, Direction: d, Load: TCP1, Light: true, Duration: 4 * time.Second})
			judge(t, Case{Cap: capacity, Direction: d, Load: UDP, Duration: 2500 * time.Millisecond})
		}
	}
	t.Run("ends", func(t *testing.T) {
		mark.Nightly(t, "10M and 100M decide; these are the ends of what users set")
		judged(t, mbit)
		judged(t, gbit)
	})
	judged(t, 10*mbit)
	judged(t, 100*mbit)
}

// The same for other kinds of load, at one cap.
func TestPrivilegedCapHoldsForEveryLoad(t *testing.T) {
	loads := []Load{TCP1BBR, TCP20, TCP6, UDP6}
	judged := func(t *testing.T, d Direction, loads ...Load) {
		t.Helper()
		for _, load := range loads {
			// Long enough that a processor which is away for 20 ms is no matter.
			judge(t, Case{Cap: 100 * mbit, Direction: d, Load: load, Duration: 5 * time.Second})
		}
	}
	t.Run("the other way", func(t *testing.T) {
		mark.Nightly(t, "each load was there once, in one direction")
		judged(t, Ingress, loads[:2]...)
		judged(t, Egress, loads[2:]...)
	})
	judged(t, Egress, loads[:2]...)
	judged(t, Ingress, loads[2:]...)
}

// Floods that defeat shapers: an ECN mark is no limit for a sender that
// ignores it, every packet a new flow, small packets.
func TestPrivilegedFloodsStayWithinTheCap(t *testing.T) {
	for _, d := range Directions {
		for _, load := range []Load{UDPECT0, UDPPorts} {
			judge(t, Case{Cap: 20 * mbit, Direction: d, Load: load, Duration: 2500 * time.Millisecond})
		}
		// One thread sends some 40,000 packets a second, which are 20 Mbit/s of these.
		judge(t, Case{Cap: 5 * mbit, Direction: d, Load: UDPTiny, Duration: 2500 * time.Millisecond})
	}
}
