// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const root = "../../.."

var (
	_ = mark.EveryTest(mark.Nightly, "it is about the rig, not about podweir")
	_ = mark.EveryTest(mark.Timed, "it compares times of packets")
)

func TestMain(m *testing.M) {
	if lab.WorkerMain() {
		return
	}
	m.Run()
}

// TestEveryProfileCanBeDone: what a profile names exists here.
func TestEveryProfileCanBeDone(t *testing.T) {
	for _, s := range spec.Profiles() {
		cells, _ := s.Cells()
		for _, c := range cells {
			if workloads[c.Workload.Kind] == nil {
				t.Errorf("%s: no workload of kind %s", c.ID(), c.Workload.Kind)
			}
			if m := c.Workload.Mix; m != nil && m.Flood != "" && floods[m.Flood].Name == "" {
				t.Errorf("%s: no flood %q", c.ID(), m.Flood)
			}
			if d := c.Phase.Discipline; c.Phase.Kind == spec.Qdisc && doubles[d] == nil {
				t.Errorf("%s: no discipline %q", c.ID(), d)
			}
		}
	}
}

// left are the namespaces and directories of this process's labs.
func left(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"/run/netns/pwlab*", "/run/podweir-lab/pwlab*"} {
		found := must.Get(filepath.Glob(pattern))(t)
		for _, f := range found {
			if strings.Contains(f, fmt.Sprintf("pwlab%d-", os.Getpid())) {
				out = append(out, f)
			}
		}
	}
	return out
}

func cell(t *testing.T, profile, id string) *spec.Run {
	t.Helper()
	s := must.Get(spec.Profile(profile))(t)
	cells, _ := s.Cells()
	for _, c := range cells {
		if c.ID() == id {
			return &spec.Run{Cell: c}
		}
	}
	t.Fatalf("profile %s has no cell %s", profile, id)
	return nil
}

// TestPrivilegedWorkloads: each kind gives its numbers, with what does not hurt one another in
// one run.
func TestPrivilegedWorkloads(t *testing.T) {
	testutil.RequireRoot(t)
	for id, tc := range map[string]struct {
		mix  *spec.Mix // if it is not the cell's
		want []string  // above 0
		most map[string]float64
	}{
		"costs cost-cubic-4-egress/100M/podweir-strict": {want: []string{"machine_cores_per_gbit", "packets_per_gbit_count"}},
		"costs tcp-1-cubic-egress/100M/podweir-strict": {
			want: []string{"egress_used_share", "egress_worst_second_share", "egress_goodput_bits_per_second"},
			// A meter of both pods saw hundreds of caps.
			most: map[string]float64{"egress_worst_second_share": 2},
		},
		"scale memory-8/100M/podweir-strict":       {want: []string{"memory_total_bytes", "memory_slots_bytes", "add_rss_p50_bytes"}},
		"scale pods-8-ingress/100G/podweir-strict": {want: []string{"alone_light_cost_ns", "spread_heavy_cost_ns", "spread_heavy_sender_cost_ns"}},
		"scale pods-1-ingress/uncapped/unshaped":   {want: []string{"spread_light_sender_cost_ns"}},
		"loads load-call-03-ecn-8-ingress/10M/podweir-strict": {want: []string{
			"bulk_marked_count", "bulk_round_trip_p50_ms", "bulk_fairness_share", "call_p50_ms",
		}},
		"loads load-pages-ingress/10M/podweir-flat": {
			mix:  &spec.Mix{CallShare: 0.03, Fetch: true, Tunnel: true, VideoShare: 0.05, Bulk: []spec.Bulk{{Congestion: "cubic", Flows: 1}}},
			want: []string{"pages_requests_per_second", "segment_mean_ms", "ingress_used_share"},
		},
		"loads load-pages-ingress/10M/podweir-strict": {
			mix:  &spec.Mix{CallShare: 0.03, Flood: "udp", FloodTimes: 1.2, Bulk: []spec.Bulk{{Congestion: lab.QUIC, Flows: 1}}},
			want: []string{"bulk_least_share", "flood_share", "offered_bits_per_second"},
		},
	} {
		profile, id, _ := strings.Cut(id, " ")
		t.Run(strings.ReplaceAll(id, "/", " "), func(t *testing.T) {
			r := cell(t, profile, id)
			w := &r.Cell.Workload
			w.BulkSeconds = 2.5
			if tc.mix != nil {
				w.Mix = tc.mix
			}
			if w.Kind == spec.Pods {
				w.Pods = min(w.Pods, 3)
			}
			into := &record.Sample{}
			must.OK(t, New(root).Run(t.Context(), r, into))
			for _, name := range tc.want {
				if got, ok := into.Metrics[name]; !ok || got <= 0 {
					t.Errorf("%s = %v (%t), want more than 0", name, got, ok)
				}
			}
			for name, most := range tc.most {
				must.AtMost(t, name, most, into.Metrics[name])
			}
			for name := range into.Metrics {
				if _, ok := record.Unit(name); !ok {
					t.Errorf("%s does not end with a unit", name)
				}
			}
			must.Len(t, "left behind", 0, left(t))
		})
	}
}

// TestRunSaysWhatIsNotHere: no sample is taken, and none fails.
func TestRunSaysWhatIsNotHere(t *testing.T) {
	r := cell(t, "loads", "load-pages-ingress/10M/podweir-strict-before")
	into := &record.Sample{}
	if err := New(t.TempDir()).Run(t.Context(), r, into); err != nil || !strings.Contains(into.Unavailable, "make before") || into.Metrics != nil {
		t.Errorf("Run = %v, %+v, want that the build is not there", err, into)
	}
}

// TestPrivilegedPodThatIsNotShapedIsNotMeasured: ADD succeeds where podweir
// fails open.
func TestPrivilegedPodThatIsNotShapedIsNotMeasured(t *testing.T) {
	testutil.RequireRoot(t)
	r := cell(t, "costs", "latency-egress/100M/podweir-strict")
	r.Cell.Rate = 500 // the least limit is 1k
	into := &record.Sample{}
	must.Fail(t, "Run with a limit that is too low", New(root).Run(t.Context(), r, into), "the plugin said")
	if len(into.Metrics) > 0 {
		t.Errorf("a pod that was not shaped has numbers: %v", into.Metrics)
	}
}
