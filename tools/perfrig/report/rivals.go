// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// contenders are the phases of [Rivals], what a reader calls them in the table and in
// the chart, and whether the software itself ran or a copy of its limit.
func contenders(r *record.Results) []struct{ phase, name, short, ran string } {
	plugin := reference(r)
	name := strings.Replace(plugin, "-", " plugin ", 1)
	return []struct{ phase, name, short, ran string }{
		{"podweir-strict", "podweir", "podweir strict", "itself"},
		{"cilium", "Cilium: policer, burst of 1 s", "copy of Cilium's, ingress", "a copy"},
		{"calico", "Calico: token bucket, burst of 4 Gibit", "copy of Calico's", "a copy"},
		{plugin, name, "bandwidth plugin", "itself"},
		{plugin + spec.Tuned, name + ", tuned: 64 kB", "bandwidth, tuned", "itself"},
	}
}

// samplesOf are the numbers of all rounds of a workload into a pod.
func samplesOf(r *record.Results, workload string, rate uint64, phase, metric string) []float64 {
	return slices.Collect(maps.Values(r.Values(workload+"-ingress/"+spec.RateName(rate)+"/"+phase, metric)))
}

// RivalRates are the caps of [Rivals], the lowest first.
func RivalRates(r *record.Results) []uint64 {
	rates := map[uint64]bool{}
	for _, c := range cellsOf(r, spec.Sweep) {
		if c.Rate > 0 && c.Workload.Direction == "ingress" {
			rates[c.Rate] = true
		}
	}
	return slices.Sorted(maps.Keys(rates))
}

// Rivals is the table that answers "why not": what each limiter does with one flow
// into a pod, at each of these caps. A number that was not measured is "-".
func Rivals(r *record.Results, rates ...uint64) Table {
	t := Table{Header: []string{"limit", "enforced by", "what ran", "worst second ÷ limit", "sent again in 10 s: cubic", "BBR", "small request, p99"}}
	for _, rate := range rates {
		for _, who := range contenders(r) {
			of := func(workload, metric string) []float64 { return samplesOf(r, workload, rate, who.phase, metric) }
			cubic := of("tcp-1-cubic", "ingress_worst_second_share")
			if len(cubic) == 0 {
				continue
			}
			t.Rows = append(t.Rows, []string{
				spec.RateName(rate), who.name, who.ran, fmt.Sprintf("%.3f", slices.Max(cubic)),
				again(of, "tcp-1-cubic"), again(of, "tcp-1-bbr"),
				meanMillis(of("latency", "kept_p99_ms")) + rangeMillis(of("latency", "kept_p99_ms")) +
					" (" + meanMillis(of("latency", "kept_bystander_p99_ms")) + ")",
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

// RivalsChart has a panel for each cap. The bars reach from the least sample to the
// largest.
func RivalsChart(r *record.Results) *Scatter {
	c := &Scatter{X: "p99 of a small request on a kept connection, beside bulk into the pod, ms", Y: "worst second ÷ limit"}
	rounds := 0
	for _, rate := range RivalRates(r) {
		p := Panel{Title: fmt.Sprintf("limit %g Mbit/s", float64(rate)/1e6), MarkName: "a pod without a limit"}
		for _, who := range contenders(r) {
			s := stats.Summarise(samplesOf(r, "latency", rate, who.phase, "kept_p99_ms"))
			worst := samplesOf(r, "tcp-1-cubic", rate, who.phase, "ingress_worst_second_share")
			if s.N == 0 || len(worst) == 0 {
				continue
			}
			rounds = max(rounds, s.N)
			p.Dots = append(p.Dots, Dot{
				Name: who.short, X: s.Mean, Y: slices.Max(worst), Text: fmt.Sprintf("%s ms, %.3g ×", Digits(s.Mean), slices.Max(worst)), Low: s.Min, High: s.Max,
			})
		}
		if free := samplesOf(r, "latency", 0, "unshaped", "kept_p99_ms"); len(free) > 0 {
			p.Mark = stats.Summarise(free).Mean
		}
		c.Panels = append(c.Panels, p)
	}
	c.Note = fmt.Sprintf("Mean of up to %d samples; the bars are their range. The worst second is the largest of all samples, with the flow's start.\n"+
		"A copy is the limiter of that product, made without its agent. %s, podweir %s, Linux %s", rounds, r.Campaign.Started.Format("2006-01-02"), r.Campaign.Machine.Commit, r.Campaign.Machine.Kernel)
	return c
}

// rangeMillis is from the least to the largest, if there are two.
func rangeMillis(v []float64) string {
	if len(v) < 2 {
		return ""
	}
	return ", " + Digits(slices.Min(v)) + " to " + Digits(slices.Max(v))
}

func meanMillis(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return Digits(stats.Summarise(v).Mean) + " ms"
}

// Digits writes three significant digits, and no more than two decimals.
func Digits(v float64) string {
	switch {
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
