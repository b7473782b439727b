// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

func TestPerSecondOf(t *testing.T) {
	var intervals []lab.BulkInterval
	for i := range 7 {
		intervals = append(intervals, lab.BulkInterval{Start: float64(i) / 2, Flows: []float64{float64(i), 10}})
	}
	// The half second from 0.5 is the first that lies behind 0.4, the last is half
	// of a second.
	want := [][]float64{{1 + 2, 3 + 4, 5 + 6}, {20, 20, 20}}
	if diff := cmp.Diff(want, perSecondOf(intervals, 0.4)); diff != "" {
		t.Errorf("perSecondOf() mismatch (-want +got):\n%s", diff)
	}
	if got := perSecondOf(intervals, 9); got != nil {
		t.Errorf("perSecondOf() behind the end = %v, want nothing", got)
	}
}

func TestMedianFairness(t *testing.T) {
	for name, tc := range map[string]struct {
		flows [][]float64
		want  float64
	}{
		"all alike":                 {[][]float64{{3, 3}, {3, 3}}, 1},
		"one has all":               {[][]float64{{8, 8}, {0, 0}, {0, 0}, {0, 0}}, 0.25},
		"the median of the seconds": {[][]float64{{1, 1, 9}, {1, 1, 0}}, 1},
	} {
		if got := medianFairness(tc.flows); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestPrivilegedLoadsBesideACall: what is measured of each, with all that do not
// hurt each other in one run.
func TestPrivilegedLoadsBesideACall(t *testing.T) {
	requireRoot(t)
	for _, tc := range []struct {
		mix  spec.Mix
		more []string // metrics that are above 0
	}{
		{
			spec.Mix{CallShare: 0.03, Stream: true, Tunnel: true, VideoShare: 0.05, Bulk: []spec.Bulk{{Congestion: "cubic", Flows: 1}}},
			[]string{"stream_p99_ms", "stream_requests_per_second", "inner_call_p50_ms", "segment_mean_ms", "segment_requests_per_second"},
		},
		{spec.Mix{CallShare: 0.03, Flood: "discovery", FloodTimes: 2}, []string{"call_p50_ms"}},
		{
			spec.Mix{CallShare: 0.03, Flood: "udp", FloodTimes: 1.2, Bulk: []spec.Bulk{{Congestion: lab.QUIC, Flows: 1}}},
			[]string{"bulk_least_share", "flood_share", "bulk_round_trip_p50_ms"},
		},
	} {
		r := cell(t, "loads", "load-pages-ingress/10M/podweir-flat")
		r.Cell.Workload.Mix = &tc.mix
		into := &record.Sample{}
		must.OK(t, New(root).Run(t.Context(), r, into))
		described(t, into)
		for _, name := range tc.more {
			if into.Metrics[name] <= 0 {
				t.Errorf("%+v: %s = %v, want more than 0", tc.mix, name, into.Metrics[name])
			}
		}
		if used := into.Metrics["ingress_used_share"]; used < 0.9 {
			t.Errorf("%+v: %.2f of the cap was used, want at least 0.9", tc.mix, used)
		}
		if flood := into.Metrics["offered_bits_per_second"]; flood < 0.95*tc.mix.FloodTimes*10e6 {
			t.Errorf("%+v: the flood offered %.1f Mbit/s", tc.mix, flood/1e6)
		}
		if n := into.Metrics["stream_errors_count"]; n != 0 {
			t.Errorf("%+v: %v requests on the stream without an answer: %v", tc.mix, n, into.Errors)
		}
	}
}

// TestPrivilegedMarksInTraffic: flows that ask for marks get them.
func TestPrivilegedMarksInTraffic(t *testing.T) {
	requireRoot(t)
	r := cell(t, "loads", "load-call-03-ecn-8-ingress/10M/podweir-strict")
	into := &record.Sample{}
	must.OK(t, New(root).Run(t.Context(), r, into))
	described(t, into)
	if m := into.Metrics; m["bulk_marked_count"] < 1 || m["bulk_round_trip_p50_ms"] <= 1 {
		t.Errorf("%v packets marked, a round trip of %v ms; want some, and the queue's", m["bulk_marked_count"], m["bulk_round_trip_p50_ms"])
	}
}

// TestPrivilegedOrdinaryLoad: a call that is answered and one that is not, and bulk
// of which the report tells the flows.
func TestPrivilegedOrdinaryLoad(t *testing.T) {
	requireRoot(t)
	for _, mix := range []spec.Mix{
		{CallShare: 0.03, Bulk: []spec.Bulk{{Congestion: "cubic", Flows: 2}}},
		{CallShare: 1.5, Fetch: true},
	} {
		r := cell(t, "loads", "load-pages-ingress/10M/podweir-flat")
		r.Cell.Workload.Mix = &mix
		into := &record.Sample{}
		must.OK(t, New(root).Run(t.Context(), r, into))
		described(t, into)
		m := into.Metrics
		if mix.Fetch && (m["call_lost_percent"] < 10 || m["pages_requests_per_second"] <= 0) {
			t.Errorf("a call of 1.5 times the cap lost %.1f %%, %.1f pages per second; want at least 10, and some",
				m["call_lost_percent"], m["pages_requests_per_second"])
		}
		if !mix.Fetch && (m["bulk_fairness_share"] < 0.5 || m["ingress_used_share"] < 0.9 || m["call_p50_ms"] <= 0) {
			t.Errorf("two bulk flows: %v", m)
		}
		if m["call_bystander_lost_percent"] != 0 {
			t.Errorf("the unlimited pod's call lost %v %%", m["call_bystander_lost_percent"])
		}
	}
}
