// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"math"
	"time"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

var podsView = view{
	spec.Pods, "What a packet costs on a node full of pods",
	"Frames of 60 B to pods, as fast as one sender can, in turns of 0.4 s: all to one pod (alone), which is attached again before each of 8 turns, because what a packet costs depends on where its program and maps lie in memory (cheapest and dearest are those of the turns); " +
		"each to another of the workload's pods (spread); to one pod, where the sender reads 8 MiB in small pages between two packets (evicted). " +
		"ns for each packet. Programs: podweir's, by the kernel's own statistics (BPF_ENABLE_STATS), less what these measure of an empty program. " +
		"Whole way: time of the sender, who does all of it up to the pod's socket. Ratios are medians of turns beside one another.",
	[]column{
		{"light: alone", "alone_light_cost_ns", 1, 0},
		{"cheapest", "least_light_cost_ns", 1, 0},
		{"dearest", "most_light_cost_ns", 1, 0},
		{"spread", "spread_light_cost_ns", 1, 0},
		{"by alone", "spread_light_cost_ratio", 1, 2},
		{"evicted", "evicted_light_cost_ns", 1, 0},
		{"heavy: alone", "alone_heavy_cost_ns", 1, 0},
		{"spread", "spread_heavy_cost_ns", 1, 0},
		{"by alone", "spread_heavy_cost_ratio", 1, 2},
		{"evicted", "evicted_heavy_cost_ns", 1, 0},
		{"whole way, light: alone", "alone_light_sender_cost_ns", 1, 0},
		{"spread", "spread_light_sender_cost_ns", 1, 0},
		{"by alone", "spread_light_sender_cost_ratio", 1, 2},
	},
}

var turnsView = view{
	spec.Turns, "Packets to many pods in turns, with nothing between them",
	"BPF_PROG_TEST_RUN, light packets of 1,500 bytes, each for the next of so many slots of the slab, ns for each packet beyond an empty program, minimum of 9 runs of 200,000.",
	[]column{
		{"pw_band", "pw_band_turns_cost_ns", 1, 0},
		{"pw_edt", "pw_edt_turns_cost_ns", 1, 0},
	},
}

var agentView = view{
	spec.Memory, "podweir's agent and ADD beside the pods",
	"A process of the agent with so many shaped pods, an API server and a container runtime that know them: anonymous resident set after it has looked at all of them and while it is scraped, MiB. Largest resident set of an ADD beside them, KiB. " +
		"Page tables by difference, KiB for each pod: those of all processes, and from Linux 6.16 on the kernel's own, which it does not give back.",
	[]column{
		{"agent, median", "agent_rss_p50_bytes", mebi, 2},
		{"most", "agent_rss_max_bytes", mebi, 2},
		{"ADD, peak", "add_rss_p50_bytes", kibi, 0},
		{"page tables", "memory_pagetables_bytes", kibi, 2},
	},
}

// pooled is a distribution of all rounds of a cell together: a percentile is
// told if ten of all samples lie beyond it.
func pooled(r *record.Results, c *spec.Cell, name string) *stats.Histogram {
	all := stats.NewHistogram(nil)
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Good() && s.Cell.ID() == c.ID() && s.Latencies[name] != nil {
			all.Add(s.Latencies[name])
		}
	}
	return all
}

// quantile is in ms, NaN if there are too few.
func quantile(h *stats.Histogram, q float64) float64 {
	if !h.Resolves(q) {
		return math.NaN()
	}
	return float64(h.Quantile(q)) / float64(time.Millisecond)
}

// podAdds is ADD by the number of pods.
func podAdds(r *record.Results) Table {
	t := Table{
		Title: "ADD on a node that has pods already",
		Note: "Whole process, both directions, for pods that ptp has made, beside as many that stay as the workload says. All samples of all rounds together; a percentile without ten ADDs beyond it is left out, and the longest of so many stands beside it. Milliseconds. " +
			"Of 50 at once the last is done after the time in the last column.",
		Header: []string{
			"workload", "phase", "ADDs", "one at a time: p50", "p95", "p99", "longest",
			"DEL p50", "50 at once: p50", "p99", "longest", "all done, median",
		},
	}
	for _, c := range cellsOf(r, spec.Adds) {
		one, del, many := pooled(r, &c, "add_one"), pooled(r, &c, "del_one"), pooled(r, &c, "add_together")
		row := []string{c.Workload.Name, c.Phase.Name, fmt.Sprint(one.Count())}
		if why := unavailable(r, &c); why != "" {
			row = append(row, why)
			t.Rows = append(t.Rows, append(row, make([]string, len(t.Header)-len(row))...))
			continue
		}
		for _, v := range []struct {
			h      *stats.Histogram
			q      float64
			digits int
		}{{one, 0.5, 2}, {one, 0.95, 2}, {one, 0.99, 2}, {one, 1, 1}, {del, 0.5, 2}, {many, 0.5, 0}, {many, 0.99, 0}, {many, 1, 0}} {
			row = append(row, milliseconds(v.h, v.q, v.digits))
		}
		whole := &column{scale: 1}
		t.Rows = append(t.Rows, append(row, whole.format(summary(r, &c, "add_together_whole_p50_ms"))))
	}
	return t
}

// milliseconds writes a quantile; 1 is the longest.
func milliseconds(h *stats.Histogram, q float64, digits int) string {
	v := quantile(h, q)
	if q == 1 && h.Count() > 0 {
		v = float64(h.Max()) / float64(time.Millisecond)
	}
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, v)
}
