// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/status"
)

var flowA = datapath.HeavyFlow{
	Protocol: 6, Source: netip.MustParseAddrPort("10.0.0.1:1"), Dest: netip.MustParseAddrPort("10.0.0.2:2"),
}

// report is one direction of one pod; the counters are light, paced, dropped
// and heavy bytes.
func report(light, paced, dropped uint64, flow uint64, q *cni.QueueStatistics) *status.Report {
	f := flowA
	f.Bytes = flow
	return &status.Report{Attachments: []status.Attachment{{
		ID: attach.ID{Network: "net", ContainerID: "c1", IfName: "eth0"}, Interface: attach.Interface{PodName: "eth0"},
		Directions: []status.Direction{{
			Direction: "egress", RateBitsPerSecond: 1000, Qdisc: q, HeavyFlows: []datapath.HeavyFlow{f},
			Counters: []datapath.Counter{
				{Disposition: "light", Packets: light / 100, Bytes: light},
				{Disposition: "paced", Packets: paced / 100, Bytes: paced},
				{Disposition: "dropped-horizon", Packets: dropped, Bytes: dropped * 100},
			},
		}},
	}}}
}

func TestRates(t *testing.T) {
	queue := func(bytes, drops uint64) *cni.QueueStatistics {
		return &cni.QueueStatistics{Bytes: bytes, Drops: drops, BacklogBytes: 77}
	}
	tests := []struct {
		name        string
		before, now *status.Report
		want        status.PodRate
	}{
		{
			"without a queue what passed was sent", report(1000, 2000, 10, 500, nil), report(2000, 6000, 30, 1500, nil),
			status.PodRate{
				SentBitsPerSecond: 20_000, LightBitsPerSecond: 4000, HeavyBitsPerSecond: 16_000, DropsPerSecond: 10,
				FlowBitsPerSecond: []float64{4000},
			},
		},
		{
			"with a queue what left it was sent", report(1000, 2000, 10, 500, queue(100, 1)), report(2000, 6000, 10, 500, queue(1100, 5)),
			status.PodRate{
				SentBitsPerSecond: 4000, LightBitsPerSecond: 4000, HeavyBitsPerSecond: 16_000, DropsPerSecond: 2,
				WaitingBytes: 77, FlowBitsPerSecond: []float64{0},
			},
		},
		{
			"new since then", &status.Report{}, report(2000, 0, 0, 1000, queue(500, 0)),
			status.PodRate{
				SentBitsPerSecond: 2000, LightBitsPerSecond: 8000, WaitingBytes: 77, FlowBitsPerSecond: []float64{4000},
			},
		},
		{
			"attached anew, its counters begin at zero", report(9000, 9000, 90, 900, nil), report(1000, 0, 0, 100, nil),
			status.PodRate{
				SentBitsPerSecond: 4000, LightBitsPerSecond: 4000, FlowBitsPerSecond: []float64{400},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := status.Rates(tt.before, tt.now, 2*time.Second)
			if len(got) != 1 {
				t.Fatalf("%d rates, want one", len(got))
			}
			tt.want.Pod, tt.want.Interface, tt.want.Direction, tt.want.CapBitsPerSecond = "net/c1", "eth0", "egress", 1000
			got[0].HeavyFlows = nil
			if diff := cmp.Diff(tt.want, got[0]); diff != "" {
				t.Errorf("Rates (-want +got):\n%s", diff)
			}
		})
	}
	if got := status.Rates(report(1, 1, 1, 1, nil), &status.Report{}, time.Second); got == nil || len(got) != 0 {
		t.Errorf("Rates of a pod that went = %v, want an empty list, not null", got)
	}
}

func TestFaults(t *testing.T) {
	r := report(0, 0, 0, 0, nil)
	if r.Faults() != 0 {
		t.Errorf("Faults = %d, want 0", r.Faults())
	}
	r.Attachments = append(r.Attachments, status.Attachment{Error: "x"}, status.Attachment{Drift: []string{"y", "z"}})
	r.Failures = []cni.Failure{{}}
	if r.Faults() != 3 {
		t.Errorf("Faults = %d, want 3: an error, a difference, a failure", r.Faults())
	}
}
