// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

var plain = spec.Phase{Name: "podweir-flat", Kind: spec.Podweir, Keys: map[string]string{"policy": "flat"}}

// loadSamples are rounds of a load, whose numbers are those of each round.
func loadSamples(p spec.Phase, w *spec.Workload, rate uint64, rounds map[string][]float64) []record.Sample {
	var out []record.Sample
	for metric, values := range rounds {
		for len(out) < len(values) {
			out = append(out, sample(p, *w, len(out), map[string]float64{}))
		}
		for round, v := range values {
			out[round].Metrics[metric], out[round].Cell.Rate = v, rate
		}
	}
	return out
}

// TestLoadBars: each bar on both sides of its edge, and with an interval that is too
// wide; one sample decides nothing.
func TestLoadBars(t *testing.T) {
	w := &spec.Workload{Name: "load-x", Kind: spec.Ordinary, Direction: "ingress", Mix: &spec.Mix{
		CallShare: 0.1, Bulk: []spec.Bulk{{Congestion: "cubic", Flows: 8}},
	}}
	ecn := *w
	ecn.Mix = &spec.Mix{CallShare: 0.1, Bulk: []spec.Bulk{{Congestion: "cubic", Flows: 8, ECN: true}}}
	out, one, many, kinds, bbr := *w, *w, *w, *w, *w
	out.Direction = "egress"
	one.Mix = &spec.Mix{CallShare: 0.1, Bulk: []spec.Bulk{{Congestion: "cubic", Flows: 1}}}
	many.Mix = &spec.Mix{CallShare: 0.01, Bulk: []spec.Bulk{{Congestion: "cubic", Flows: 64}}}
	kinds.Mix = &spec.Mix{CallShare: 0.1, Bulk: []spec.Bulk{{Congestion: "cubic", Flows: 4}, {Congestion: "bbr", Flows: 4}}}
	bbr.Mix = &spec.Mix{CallShare: 0.1, Bulk: []spec.Bulk{{Congestion: "bbr", Flows: 8}}}
	beside := func(flows int) *spec.Workload {
		of := *w
		of.Mix = &spec.Mix{CallShare: 0.03, Bulk: []spec.Bulk{{Congestion: "quic", Flows: flows}}, Flood: "udp", FloodTimes: 1.2}
		return &of
	}
	const at100M, at10M = 100_000_000, 10_000_000
	for name, tc := range map[string]struct {
		w           *spec.Workload
		rate        uint64
		ours, plain map[string][]float64
		want        string // word and name
	}{
		"loss":                {w, at10M, map[string][]float64{"call_lost_percent": {0.4, 0.41, 0.42}}, nil, "ok call lost"},
		"too much loss":       {w, at10M, map[string][]float64{"call_lost_percent": {0.6, 0.61, 0.62}}, nil, "MISS call lost"},
		"too wide":            {w, at10M, map[string][]float64{"call_lost_percent": {0, 0, 1}}, nil, "? call lost"},
		"one sample":          {w, at10M, map[string][]float64{"call_lost_percent": {0}}, nil, "? call lost"},
		"p99 of three":        {w, at10M, map[string][]float64{"call_p99_ms": {32, 31, 32}, "call_bystander_p99_ms": {2, 1, 2}}, nil, "ok call p99, beyond the bystander's"},
		"p99 of more":         {w, at10M, map[string][]float64{"call_p99_ms": {33, 32, 33}, "call_bystander_p99_ms": {2, 1, 2}}, nil, "MISS call p99, beyond the bystander's"},
		"no worse loss":       {w, at100M, map[string][]float64{"call_lost_percent": {2, 3}}, map[string][]float64{"call_lost_percent": {2, 3}}, "ok call lost, beyond podweir-flat's"},
		"worse loss":          {w, at100M, map[string][]float64{"call_lost_percent": {2, 3}}, map[string][]float64{"call_lost_percent": {1.8, 2.8}}, "MISS call lost, beyond podweir-flat's"},
		"a frame later":       {w, at10M, map[string][]float64{"call_p90_ms": {3, 5}}, map[string][]float64{"call_p90_ms": {1.8, 3.8}}, "ok call p90, beyond podweir-flat's"},
		"more than that":      {w, at10M, map[string][]float64{"call_p90_ms": {3, 5}}, map[string][]float64{"call_p90_ms": {1.7, 3.7}}, "MISS call p90, beyond podweir-flat's"},
		"pages no later":      {w, at10M, map[string][]float64{"pages_p95_ms": {801, 901}}, map[string][]float64{"pages_p95_ms": {800, 900}}, "ok pages p95, beyond podweir-flat's"},
		"pages later":         {w, at10M, map[string][]float64{"pages_p95_ms": {802, 902}}, map[string][]float64{"pages_p95_ms": {800, 900}}, "MISS pages p95, beyond podweir-flat's"},
		"segments later":      {w, at10M, map[string][]float64{"segment_mean_ms": {9, 9}}, map[string][]float64{"segment_mean_ms": {7, 7}}, "MISS video segments, mean, beyond podweir-flat's"},
		"unfair":              {w, at10M, map[string][]float64{"bulk_fairness_share": {0.94, 0.94}}, nil, "MISS fairness of the bulk flows"},
		"fair":                {w, at10M, map[string][]float64{"bulk_fairness_share": {0.96, 0.96}}, nil, "ok fairness of the bulk flows"},
		"64 fair":             {&many, at10M, map[string][]float64{"bulk_fairness_share": {0.94, 0.94}}, nil, "ok fairness of the bulk flows"},
		"64 at 100M":          {&many, at100M, map[string][]float64{"bulk_fairness_share": {0.94, 0.94}}, nil, "MISS fairness of the bulk flows"},
		"kinds fair":          {&kinds, at10M, map[string][]float64{"bulk_fairness_share": {0.75, 0.75}}, nil, "ok fairness of the bulk flows"},
		"kinds unfair":        {&kinds, at10M, map[string][]float64{"bulk_fairness_share": {0.74, 0.74}}, nil, "MISS fairness of the bulk flows"},
		"sent again":          {w, at10M, map[string][]float64{"late_retransmits_percent": {3.1, 3.1}}, nil, "MISS segments sent again"},
		"not so much":         {w, at10M, map[string][]float64{"late_retransmits_percent": {2.9, 2.9}}, nil, "ok segments sent again"},
		"faster":              {w, at100M, map[string][]float64{"late_retransmits_percent": {2.1, 2.1}}, nil, "MISS segments sent again"},
		"by one":              {&one, at100M, map[string][]float64{"late_retransmits_percent": {1.1, 1.1}}, nil, "MISS segments sent again"},
		"by BBR":              {&bbr, at10M, map[string][]float64{"late_retransmits_percent": {7.9, 7.9}}, nil, "ok segments sent again"},
		"by more of it":       {&bbr, 20_000_000, map[string][]float64{"late_retransmits_percent": {3.1, 3.1}}, nil, "MISS segments sent again"},
		"out":                 {&out, at10M, map[string][]float64{"late_retransmits_percent": {1.1, 1.1}}, nil, "MISS segments sent again"},
		"marks, and again":    {&ecn, at10M, map[string][]float64{"late_retransmits_count": {5, 5}}, nil, "MISS segments sent again by ECN flows"},
		"no marks":            {&ecn, at10M, map[string][]float64{"bulk_marked_count": {5, 0}, "bulk_dropped_count": {1, 0}}, nil, "MISS packets marked"},
		"none owed":           {&ecn, at10M, map[string][]float64{"bulk_marked_count": {5, 0}, "bulk_dropped_count": {0, 0}}, nil, "ok packets marked"},
		"marks":               {&ecn, at10M, map[string][]float64{"bulk_marked_count": {5, 1}}, nil, "ok packets marked"},
		"the cap is used":     {w, at10M, map[string][]float64{"ingress_used_share": {0.98, 0.98}}, nil, "ok use of the cap"},
		"and not used":        {w, at10M, map[string][]float64{"ingress_used_share": {0.96, 0.96}}, nil, "MISS use of the cap"},
		"bulk waits":          {w, at100M, map[string][]float64{"bulk_round_trip_p50_ms": {51, 51}}, nil, "MISS bulk's own wait, median"},
		"bulk does not":       {w, at100M, map[string][]float64{"bulk_round_trip_p50_ms": {49, 49}}, nil, "ok bulk's own wait, median"},
		"it waits out":        {&out, at100M, map[string][]float64{"bulk_round_trip_p50_ms": {26, 26}}, nil, "MISS bulk's own wait, median"},
		"one keeps its part":  {beside(1), at10M, map[string][]float64{"bulk_least_share": {0.4, 0.4}}, nil, "ok the least flow's part beside a flood"},
		"one does not":        {beside(1), at10M, map[string][]float64{"bulk_least_share": {0.39, 0.39}}, nil, "MISS the least flow's part beside a flood"},
		"each of four does":   {beside(4), at10M, map[string][]float64{"bulk_least_share": {0.151, 0.151}}, nil, "ok the least flow's part beside a flood"},
		"too much to a flood": {beside(4), at10M, map[string][]float64{"flood_share": {0.36, 0.36}}, nil, "MISS the flood's part"},
		"no more than it may": {beside(1), at10M, map[string][]float64{"flood_share": {0.59, 0.59}}, nil, "ok the flood's part"},
		"nobody asks there":   {w, at10M, map[string][]float64{"bulk_round_trip_p50_ms": {99, 99}}, nil, ""},
	} {
		r := &record.Results{Samples: append(loadSamples(ours, tc.w, tc.rate, tc.ours), loadSamples(plain, tc.w, tc.rate, tc.plain)...)}
		var got []string
		for _, b := range Bars(r) {
			_, what, _ := strings.Cut(b.What, ": ")
			got = append(got, b.word()+" "+what)
		}
		// What is compared with the plain queue is judged by itself, too.
		if tc.plain != nil && len(got) > 0 {
			got = got[len(got)-1:]
		}
		must.Match(t, name, tc.want, strings.Join(got, "; "))
	}
}

// TestLoadBarsOfAFlood: a call has no share among flows without number, but it
// is compared with a plain queue.
func TestLoadBarsOfAFlood(t *testing.T) {
	w := &spec.Workload{Name: "load-x", Kind: spec.Ordinary, Direction: "ingress", Mix: &spec.Mix{CallShare: 0.03, Flood: "ports"}}
	lost := map[string][]float64{"call_lost_percent": {9, 9}}
	r := &record.Results{Samples: append(loadSamples(ours, w, 10_000_000, lost), loadSamples(plain, w, 10_000_000, lost)...)}
	want := map[string]string{"load-x/10M/podweir-strict: call lost, beyond podweir-flat's": "ok"}
	must.Match(t, "bars", want, words(Bars(r)))
}
