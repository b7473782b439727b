// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package compare

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// results are three rounds of podweir and the tuned reference plugin. Every
// time is multiplied by slow, as on a machine that is busy; podweir's latency
// by ours besides.
func results(slow, ours float64) *record.Results {
	r := &record.Results{}
	for round, noise := range []float64{0.98, 1, 1.03} {
		for _, kind := range []spec.Kind{spec.Bandwidth, spec.Podweir} {
			p99 := 20 * slow * noise
			if kind == spec.Podweir {
				p99 = 0.5 * slow * ours * (2 - noise)
			}
			r.Samples = append(r.Samples, record.Sample{
				Cell:  spec.Cell{Phase: spec.Phase{Name: string(kind), Kind: kind}, Rate: 1e8, Workload: spec.Workload{Name: "w"}},
				Round: round,
				Metrics: map[string]float64{
					"kept_p99_ms": p99, "egress_used_share": 0.99 * noise / ours, "late_retransmits_percent": 0,
					// Which are not judged, whatever they do.
					"kept_max_ms": p99, "kept_bystander_p99_ms": p99, "idle_p99_ms": p99, "memory_slab_bytes": p99,
					"egress_wire_bits_per_second": 1e8,
				},
			})
		}
	}
	return r
}

func verdicts(rows []Row) map[string]Verdict {
	out := map[string]Verdict{}
	for _, r := range rows {
		out[r.Metric] = r.Verdict
	}
	return out
}

// TestJudge: a machine of half the speed is no regression; podweir at half the
// speed is one, in times and in uses of the cap; what improves is not; counts
// of nothing are not judged; what has no better way is not looked at.
func TestJudge(t *testing.T) {
	const latency, used = "kept_p99_ms ÷ bandwidth-1.9", "egress_used_share"
	for name, tc := range map[string]struct {
		slow, ours    float64
		latency, used Verdict
	}{
		"the same":                 {1, 1, Same, Same},
		"a slower machine":         {2, 1, Same, Same},
		"podweir slower":           {1, 2, Worse, Worse},
		"podweir slower by little": {1, 1.02, Same, Same},
		"podweir faster":           {2, 0.5, Better, Better},
	} {
		t.Run(name, func(t *testing.T) {
			rows := Judge(results(1, 1), results(tc.slow, tc.ours))
			want := map[string]Verdict{latency: tc.latency, used: tc.used}
			if diff := cmp.Diff(want, verdicts(rows)); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
			wantWorse := 0
			for _, v := range want {
				if v == Worse {
					wantWorse++
				}
			}
			if got := len(Regressions(rows)); got != wantWorse {
				t.Errorf("%d regressions, want %d", got, wantWorse)
			}
		})
	}
}

// TestNoiseIsNotARegression: the change must be more than both spreads, and
// among many judgements more than one alone would ask for.
func TestNoiseIsNotARegression(t *testing.T) {
	noisy := func(values ...float64) *record.Results {
		r := &record.Results{}
		for round, v := range values {
			s := record.Sample{
				Cell:  spec.Cell{Phase: spec.Phase{Name: "p", Kind: spec.Podweir}, Workload: spec.Workload{Name: "w"}},
				Round: round, Metrics: map[string]float64{},
			}
			for i := range 20 {
				s.Metrics[fmt.Sprintf("load%d_used_share", i)] = 1 + 0.001*float64(round)
			}
			s.Metrics["kept_p99_over_bystander_ratio"] = v
			r.Samples = append(r.Samples, s)
		}
		return r
	}
	const metric = "kept_p99_over_bystander_ratio"
	for name, tc := range map[string]struct {
		after []float64
		want  Verdict
	}{
		"half as much again, but as noisy": {[]float64{1.1, 1.5, 2.1}, Same},
		"ten times as much":                {[]float64{9.8, 10, 10.5}, Worse},
		"one sample":                       {[]float64{10}, NotJudged},
	} {
		got := verdicts(Judge(noisy(0.9, 1, 1.15), noisy(tc.after...)))[metric]
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestRatiosAreOfOneRound: a sample without its partner of the same round has
// no ratio.
func TestRatiosAreOfOneRound(t *testing.T) {
	r := results(1, 1)
	r.Samples[0].Failed = "round 0 of the reference"
	got := ratios(r)[key{"w/100M/podweir", "kept_p99_ms ÷ bandwidth-1.9"}]
	if len(got) != 2 {
		t.Errorf("%d ratios, want 2: %v", len(got), got)
	}
}
