// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/podweir/podweir/e2e/demo/result"
	"github.com/podweir/podweir/e2e/figures"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// contenders are the phases of [Rivals], and what a reader calls them in the table
// and in the chart.
var contenders = []struct{ phase, name, short string }{
	{"podweir-strict", "podweir", "podweir strict"},
	{"cilium", "Cilium: policer, burst of 1 s", "Cilium's manager, ingress"},
	{"calico", "Calico: token bucket, burst of 4 Gibit", "Calico's QoS"},
	{shipped, "bandwidth plugin 1.9", "bandwidth plugin"},
	{tuned, "the same, tuned: 64 kB", "bandwidth, tuned"},
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
	t := Table{Header: []string{"cap", "limit by", "worst second ÷ cap", "sent again in 10 s: cubic", "BBR", "kept connection, p99"}}
	for _, rate := range rates {
		for _, who := range contenders {
			of := func(workload, metric string) []float64 { return samplesOf(r, workload, rate, who.phase, metric) }
			cubic := of("tcp-1-cubic", "ingress_worst_second_share")
			if len(cubic) == 0 {
				continue
			}
			t.Rows = append(t.Rows, []string{
				spec.RateName(rate), who.name, fmt.Sprintf("%.3f", slices.Max(cubic)),
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
func RivalsChart(r *record.Results) *figures.Dots {
	c := &figures.Dots{Unit: "ms"}
	rounds := 0
	for _, rate := range RivalRates(r) {
		p := figures.Panel{Title: fmt.Sprintf("limit %g Mbit/s", float64(rate)/1e6)}
		add := func(name string, samples []float64) {
			s := stats.Summarise(samples)
			if s.N == 0 {
				return
			}
			rounds = max(rounds, s.N)
			p.Dots = append(p.Dots, figures.Dot{
				Name: name, Value: s.Mean, Text: result.Digits(s.Mean), Bar: figures.Bar{Low: s.Min, High: s.Max},
			})
		}
		for _, who := range contenders {
			add(who.short, samplesOf(r, "latency", rate, who.phase, "kept_p99_ms"))
		}
		add("no limit", samplesOf(r, "latency", 0, "unshaped", "kept_p99_ms"))
		c.Panels = append(c.Panels, p)
	}
	c.Note = fmt.Sprintf("p99 in ms of a small request on a kept connection, beside bulk into the pod.\n"+
		"Mean of up to %d samples; the bars are their range. %s, Linux %s", rounds, r.Campaign.Started.Format("2006-01-02"), r.Campaign.Machine.Kernel)
	return c
}

// rangeMillis is from the least to the largest, if there are two.
func rangeMillis(v []float64) string {
	if len(v) < 2 {
		return ""
	}
	return ", " + result.Digits(slices.Min(v)) + " to " + result.Digits(slices.Max(v))
}

func meanMillis(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return result.Digits(stats.Summarise(v).Mean) + " ms"
}
