// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// contenders are the phases of [Rivals], and what a reader calls them.
var contenders = []struct{ phase, name string }{
	{"podweir-strict", "podweir"},
	{"cilium", "Cilium: policer, burst of 1 s"},
	{"calico", "Calico: token bucket, burst of 4 Gibit"},
	{shipped, "bandwidth plugin 1.9"},
	{tuned, "the same, tuned: 64 kB"},
}

// Rivals is the table that answers "why not": what each limiter does with one flow
// into a pod, at each cap of the campaign. A number that was not measured is "-".
func Rivals(r *record.Results) Table {
	t := Table{Header: []string{"cap", "limit by", "worst second ÷ cap", "sent again in 10 s: cubic", "BBR", "kept connection, p99"}}
	rates := map[uint64]bool{}
	for _, c := range cellsOf(r, spec.Sweep) {
		if c.Rate > 0 && c.Workload.Direction == "ingress" {
			rates[c.Rate] = true
		}
	}
	for _, rate := range slices.Sorted(maps.Keys(rates)) {
		for _, who := range contenders {
			of := func(workload, metric string) []float64 {
				return slices.Collect(maps.Values(r.Values(workload+"-ingress/"+spec.RateName(rate)+"/"+who.phase, metric)))
			}
			cubic := of("tcp-1-cubic", "ingress_worst_second_share")
			if len(cubic) == 0 {
				continue
			}
			t.Rows = append(t.Rows, []string{
				spec.RateName(rate), who.name, fmt.Sprintf("%.3f", slices.Max(cubic)),
				again(of, "tcp-1-cubic"), again(of, "tcp-1-bbr"),
				meanMillis(of("latency", "kept_p99_ms")) + " (" + meanMillis(of("latency", "kept_bystander_p99_ms")) + ")",
			})
		}
	}
	return t
}

// again is how many segments were sent again in ten seconds, slow start included.
func again(of func(workload, metric string) []float64, workload string) string {
	early, late := stats.Summarise(of(workload, "early_retransmits_count")), stats.Summarise(of(workload, "late_retransmits_count"))
	if early.N == 0 || late.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", (early.Mean+late.Mean)*10/spec.SweepSeconds)
}

func meanMillis(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", stats.Summarise(v).Mean)
}
