// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package collide

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/podweir/podweir/bpf/model"
)

const (
	enough = 6
	// packets of a flow, each of so much of the threshold that one flow alone is
	// far from it and a few together are over it.
	packets = 10
	cost    = model.EstimateOne / 3 / packets

	halfLifeShift = 10
)

func search(inwards bool) *Search {
	pod, client := netip.MustParseAddr("198.18.3.2"), netip.MustParseAddr("198.18.1.2")
	victim := TCP(netip.AddrPortFrom(client, 40000), netip.AddrPortFrom(pod, 5000))
	if !inwards {
		victim = TCP(netip.AddrPortFrom(pod, 5000), netip.AddrPortFrom(client, 40000))
	}
	return &Search{
		Victim: victim, Keys: Assumed(), Pod: pod, Inwards: inwards, Remote: netip.MustParsePrefix("198.19.0.0/17"),
		FirstPort: 1024, LastPort: 65535, ToPort: 4000, Most: enough,
	}
}

// estimates are the victim's and the largest of the flows' after all of them
// have sent, under a key.
func estimates(s *Search, keys *model.Keys, found []netip.AddrPort) (victim, largest uint32) {
	var sketch model.Sketch
	for range packets {
		for _, remote := range found {
			f := s.Flow(remote)
			largest = max(largest, sketch.Update(keys.Hash(&f), 1, cost, halfLifeShift))
		}
	}
	return sketch.Update(keys.Hash(&s.Victim), 1, 0, halfLifeShift), largest
}

// TestFoundFlowsCollide: where the key is the assumed one, light flows make the
// victim heavy, which sent nothing; with random keys they do not.
func TestFoundFlowsCollide(t *testing.T) {
	for name, inwards := range map[string]bool{"ingress": true, "egress": false} {
		t.Run(name, func(t *testing.T) {
			s := search(inwards)
			found := s.Run()
			if len(found) != enough {
				t.Fatalf("%d flows found, want %d", len(found), enough)
			}
			seen := map[netip.AddrPort]bool{}
			for _, remote := range found {
				if seen[remote] || !s.Remote.Contains(remote.Addr()) || remote.Port() < s.FirstPort {
					t.Errorf("%s is found twice or is none that may be used", remote)
				}
				seen[remote] = true
				// One flow alone must share every row with the victim.
				if victim, alone := estimates(s, &s.Keys, []netip.AddrPort{remote}); victim != alone || alone >= model.EstimateOne {
					t.Errorf("%s sent %d, of which the victim is charged %d, want all of it, and not heavy", remote, alone, victim)
				}
			}
			if victim, _ := estimates(s, &s.Keys, found); victim < model.EstimateOne {
				t.Errorf("under the assumed key the victim has %d, want at least %d", victim, model.EstimateOne)
			}
			random := rand.New(rand.NewPCG(7, uint64(len(name))))
			for range 200 {
				var keys model.Keys
				for i := range keys {
					for j := range keys[i] {
						keys[i][j] = random.Uint64()
					}
				}
				if victim, _ := estimates(s, &keys, found); victim >= model.EstimateOne {
					t.Errorf("under random keys the victim has %d, want less than %d", victim, model.EstimateOne)
				}
			}
		})
	}
}

// TestSearchIsTheModelsHash: a chance of one in 2^27 would also be found by a
// wrong hash; the words must be those of the model.
func TestSearchIsTheModelsHash(t *testing.T) {
	s := search(true)
	for port := range uint16(100) {
		f := s.Flow(netip.AddrPortFrom(netip.MustParseAddr("198.19.1.2"), 2000+port*37))
		var sum uint64
		for i, w := range words(&f) {
			sum += s.Keys[i][0] * uint64(w)
		}
		if got, want := uint32(sum>>halfShift), uint32(s.Keys.Hash(&f)>>halfShift); got != want {
			t.Fatalf("hash of port %d is %#x, want the model's %#x", f.SrcPort, got, want)
		}
	}
}
