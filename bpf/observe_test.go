// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"math/rand/v2"
	"testing"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/plugin/shaping"
)

// A limit that is observed only counts exactly the packets that policing would drop,
// and lets each of them pass as it is: the answer is next, and no packet is marked.
func TestPrivilegedObserve(t *testing.T) {
	const bits, packetBytes = 10e6, 700
	d := bpftest.Load(t)
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			d := d.For(t)
			observed, enforced := newDirection(bits, policy), newDirection(bits, policy)
			for _, m := range []*model.Direction{observed, enforced} {
				m.Config.TotalBurst, m.Config.TotalHorizon = packetsOf(10, packetBytes, bits), packetsOf(40, packetBytes, bits)
				setFair(&m.Config)
			}
			observed.Config.Observe = true
			reset(d, observed)
			random := rand.New(rand.NewPCG(7, uint64(policy)))
			now := random.Uint64() >> 1
			seen := map[model.Disposition]int{}
			for range 600 {
				now += uint64(random.Float64() * 12 * packetBytes * 8e9 / bits)
				s := &step{
					program: "pw_police", packet: randomPacket(random), random: random.Uint32(),
					clock: model.Clock{ExactNS: now, CoarseNS: now - uint64(random.Int64N(4e6))},
				}
				want := s.outcome(enforced)
				got, ok := both(t, d, observed, s) // which compares answer, packet and counters
				if !ok {
					t.Fatalf("the kernel does not build a packet of %d bytes", len(s.packet.Data))
				}
				seen[got.Disposition]++
				if (got.Disposition == model.WouldDrop) != want.Disposition.Dropped() {
					t.Fatalf("observed as %v, and policing makes it %v", got.Disposition, want.Disposition)
				}
				if got.Disposition.Dropped() || got.Disposition == model.Marked {
					t.Fatalf("an observed packet was %v", got.Disposition)
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			if seen[model.WouldDrop] < 20 || seen[model.WouldWait] < 20 {
				t.Errorf("the run saw only %v", seen)
			}
		})
	}
}

// packetsOf is how long so many packets take at a rate.
func packetsOf(n, size, bits float64) shaping.MeterTime {
	return shaping.MeterTime(n * size * 8e9 * 64 / bits)
}
