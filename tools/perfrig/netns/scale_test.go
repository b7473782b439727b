// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"testing"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// TestLightFlowsAreLight: in no profile a flow of the light ones sends what
// makes it heavy, 5 % of the cap, headers of Ethernet included.
func TestLightFlowsAreLight(t *testing.T) {
	const heavyShare, ethernet, leastPacket = 0.05, 14, 28
	fresh := 0
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
			if packets := w.PacketsPerSecond * w.BulkSeconds; packets <= float64(w.Flows) {
				fresh++
			}
		}
	}
	if fresh != 1 {
		t.Errorf("%d workloads have fresh flows only, want the one of ten minutes", fresh)
	}
}

// TestHeavyIsTheClassifiers: a flow is heavy by its estimate or because it is
// held, both until they have gone by; it is held by its own mark alone.
func TestHeavyIsTheClassifiers(t *testing.T) {
	const tick, hold, marks, light = 5000, 500, 1 << 12, model.EstimateOne / 4
	cfg := &image.Config{HoldTicks: hold, HalfLifeShift: 5, LightLeast: 1, LightMost: light, FrameEst: 1000}
	id := model.FlowID(0x0123_4567_89ab_cdef)
	for name, tc := range map[string]struct {
		est, until uint32
		want       int // of the marks
	}{
		"light":          {light + light/4 + 999, 0, 0},
		"heavy":          {light + light/4 + 1000, 0, marks},
		"light and held": {0, tick + hold, 1},
		"held before":    {0, tick - 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := 0
			for mark := range uint32(marks) {
				s := image.State{Fair: model.EstimateOne}
				for row := range s.Cells {
					for i := range s.Cells[row] {
						s.Cells[row][i] = image.Cell{Est: tc.est, Tick: tick}
					}
				}
				for row := range s.Flows {
					for i := range s.Flows[row] {
						// Mark, age 0, and the time in units of 8 ticks.
						s.Flows[row][i] = mark<<20 | tc.until>>3
					}
				}
				if heavy(&s, cfg, id, tick) {
					got++
				}
				if s.Cells[0][0].Tick != tick {
					t.Fatal("to look at the state changes it")
				}
			}
			if got != tc.want {
				t.Errorf("heavy by %d of %d marks, want %d", got, marks, tc.want)
			}
		})
	}
}

// TestPrivilegedCollisionsNeedTheKey: the same attack makes the victim heavy
// where it has the key, and does nothing to it where it has not.
func TestPrivilegedCollisionsNeedTheKey(t *testing.T) {
	requireRoot(t)
	for _, d := range []string{"ingress", "egress"} {
		for variant, works := range map[string]bool{collides: false, collidesKnown: true} {
			t.Run(variant+" "+d, func(t *testing.T) {
				into := &record.Sample{}
				r := cell(t, "full", "attack-"+variant+"-"+d+"/10M/podweir-strict")
				if err := New(root).Run(t.Context(), r, into); err != nil {
					t.Fatal(err)
				}
				share, over := into.Metrics["victim_heavy_share"], into.Metrics["kept_p99_over_bystander_ratio"]
				t.Logf("taken for heavy %.3f of the time, p99 %.1f times the bystander's", share, over)
				// The heavy band is 50 ms deep.
				if works && (share < 0.9 || into.Metrics["kept_p99_ms"] < 20) || !works && share > 0.05 {
					t.Errorf("taken for heavy %.3f of the time, p99 %.1f ms, want it to work: %v",
						share, into.Metrics["kept_p99_ms"], works)
				}
				for name := range into.Metrics {
					if _, ok := record.Describe(name); !ok {
						t.Errorf("nothing describes %s", name)
					}
				}
			})
		}
	}
}

// TestPrivilegedFreshFlows: with more flows than packets, every packet is that
// of another flow.
func TestPrivilegedFreshFlows(t *testing.T) {
	requireRoot(t)
	r := cell(t, "full", "flows-fresh-ingress-600s/100M/podweir-strict")
	r.Cell.Workload.BulkSeconds = 3
	into := &record.Sample{}
	if err := New(root).Run(t.Context(), r, into); err != nil {
		t.Fatal(err)
	}
	want := r.Cell.Workload.PacketsPerSecond * r.Cell.Workload.BulkSeconds
	if got := into.Metrics["flows_count"]; got < 0.9*want || got > want+1 {
		t.Errorf("%.0f flows, want %.0f", got, want)
	}
	if live, all := into.Metrics["flows_live_count"], into.Metrics["flows_count"]; live != all {
		t.Errorf("%.0f of %.0f flows are live within 3 s, want all", live, all)
	}
}

// liveFor is told as 4.3 s.
func TestLiveFor(t *testing.T) {
	if liveFor < 4290*time.Millisecond || liveFor > 4300*time.Millisecond {
		t.Errorf("liveFor = %v, want 4.3 s", liveFor)
	}
}
