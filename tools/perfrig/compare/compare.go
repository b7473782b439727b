// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package compare judges one campaign against another: by ratios, each within
// its own run, and by the spread of both. It is pure.
package compare

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Verdict is what became of a ratio.
type Verdict string

// The verdicts.
const (
	Same      Verdict = "same"
	Better    Verdict = "better"
	Worse     Verdict = "WORSE"
	NotJudged Verdict = "not judged"
)

const (
	// wrongAtAll is how probable it is that any of all judgements calls noise a
	// change (Bonferroni: each one gets its share).
	wrongAtAll = 0.05
	// least is a change that matters; less is "same", however certain.
	least = 0.05
)

// Row is one ratio in both campaigns.
type Row struct {
	Cell   string // ID
	Metric string
	// Before and After are the samples.
	Before, After []float64
	Difference    stats.Difference
	Verdict       Verdict
}

// key names a ratio.
type key struct{ cell, metric string }

// references are the phases that podweir's times and rates are divided by.
var references = []spec.Kind{spec.Bandwidth, spec.Unshaped}

// judged says whether a metric is one by which podweir is judged. The more there
// are, the more each one must change to be more than luck: of a distribution
// the 99th percentile stands for all, and what a bystander, an idle connection
// or a single longest request had is not podweir's doing.
func judged(name string) bool {
	if strings.Contains(name, "_bystander_") && !strings.Contains(name, "over_bystander") {
		return false
	}
	for _, part := range []string{"_max_", "_p95_", "_p99.", "idle", "early_", "_count", "_excess_", "_at_once_"} {
		if strings.Contains(name, part) {
			return false
		}
	}
	for _, prefix := range []string{"open_p50", "kept_p50", "closed_p50", "kept_requests", "open_requests"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return !strings.HasPrefix(name, "memory_") || name == "memory_total_bytes"
}

// ratios are those of podweir's phases: metrics that are ratios, and others
// divided by the same of a reference phase in the same round. An absolute time
// or rate is never one.
func ratios(r *record.Results) map[key][]float64 {
	out := map[key][]float64{}
	index := map[string]*record.Sample{}
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Good() {
			index[s.ID()] = s
		}
	}
	partners := partnersOf(r)
	for _, id := range slices.Sorted(maps.Keys(index)) {
		s := index[id]
		if s.Cell.Phase.Kind != spec.Podweir {
			continue
		}
		for name, value := range s.Metrics {
			m, ok := record.Describe(name)
			if !ok || m.Better == record.Neither || !judged(name) {
				continue
			}
			if m.Ratio {
				k := key{s.Cell.ID(), name}
				out[k] = append(out[k], value)
				continue
			}
			for _, other := range partners[s.Cell.Workload.Name] {
				if other.Rate != 0 && other.Rate != s.Cell.Rate {
					continue
				}
				partner := index[(&spec.Run{Cell: other, Round: s.Round}).ID()]
				if partner == nil || partner.Metrics[name] <= 0 {
					continue
				}
				k := key{s.Cell.ID(), name + " ÷ " + other.Phase.Name}
				out[k] = append(out[k], value/partner.Metrics[name])
			}
		}
	}
	return out
}

// partnersOf are the reference cells by workload.
func partnersOf(r *record.Results) map[string][]spec.Cell {
	out := map[string][]spec.Cell{}
	seen := map[string]bool{}
	for i := range r.Samples {
		c := r.Samples[i].Cell
		if seen[c.ID()] || !slices.Contains(references, c.Phase.Kind) {
			continue
		}
		seen[c.ID()] = true
		out[c.Workload.Name] = append(out[c.Workload.Name], c)
	}
	return out
}

// Judge compares all ratios that both campaigns have, the worst first.
func Judge(before, after *record.Results) []Row {
	was, is := ratios(before), ratios(after)
	var rows []Row
	for k, samples := range was {
		if now, ok := is[k]; ok {
			rows = append(rows, Row{Cell: k.cell, Metric: k.metric, Before: samples, After: now})
		}
	}
	for i := range rows {
		rows[i].judge(1 - wrongAtAll/float64(len(rows)))
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(rank[a.Verdict], rank[b.Verdict]),
			cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.Metric, b.Metric))
	})
	return rows
}

var rank = map[Verdict]int{Worse: 0, Better: 1, Same: 2, NotJudged: 3}

func (r *Row) judge(confidence float64) {
	d, ok := stats.Different(r.Before, r.After, confidence)
	if !ok {
		r.Verdict = NotJudged
		return
	}
	r.Difference, r.Verdict = d, Same
	up := d.Low > 1 && d.Ratio > 1+least
	down := d.High < 1 && d.Ratio < 1/(1+least)
	if !up && !down {
		return
	}
	r.Verdict = Worse
	if up == (r.better() == record.Higher) {
		r.Verdict = Better
	}
}

// better is which way the ratio improves: the way of its metric.
func (r *Row) better() record.Better {
	name, _, _ := strings.Cut(r.Metric, " ÷ ")
	m, _ := record.Describe(name)
	return m.Better
}

// Regressions are the rows that became worse.
func Regressions(rows []Row) []Row {
	var out []Row
	for _, r := range rows {
		if r.Verdict == Worse {
			out = append(out, r)
		}
	}
	return out
}
