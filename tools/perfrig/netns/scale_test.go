// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// TestLightFlowsAreLight: in no profile a flow of the light ones sends what
// makes it heavy, 5 % of the cap, headers of Ethernet included.
func TestLightFlowsAreLight(t *testing.T) {
	const heavyShare, ethernet, leastPacket = 0.05, 14, 28
	for _, s := range spec.Profiles() {
		cells, _ := s.Cells()
		for _, c := range cells {
			w := &c.Workload
			if w.Kind != spec.Flows {
				continue
			}
			load := (&run{cell: &c}).crowded(&lab.Host{}, &lab.Host{})
			if load.PacketBytes < leastPacket {
				t.Errorf("%s: packets of %d bytes", c.ID(), load.PacketBytes)
			}
			each := load.PerSecond * float64(load.PacketBytes+ethernet) * 8 / float64(w.Flows)
			if most := heavyShare * float64(c.Rate); each > 0.8*most {
				t.Errorf("%s: each flow sends %.0f bit/s, want it clearly below %.0f", c.ID(), each, most)
			}
		}
	}
}

// liveFor is told as 4.3 s.
func TestLiveFor(t *testing.T) {
	if liveFor < 4290*time.Millisecond || liveFor > 4300*time.Millisecond {
		t.Errorf("liveFor = %v, want 4.3 s", liveFor)
	}
}
