// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package report renders a campaign: tables for a terminal and for a Markdown
// page, the bars that podweir is held to, and charts.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Table is one of a report.
type Table struct {
	Header []string
	Rows   [][]string
}

// within keeps a text in its cell.
var within = strings.NewReplacer("|", `\|`, "\n", "<br>")

// Markdown is the table as a page has it.
func (t *Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.Header, " | "), strings.Repeat(" --- |", len(t.Header)))
	for _, row := range t.Rows {
		for _, text := range row {
			b.WriteString("| " + within.Replace(text) + " ")
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// cellsOf are the cells that were measured, each once: workloads in the order
// of their pods and names, rates ascending, phases as the spec has them.
func cellsOf(r *record.Results, kind spec.WorkloadKind) []spec.Cell {
	rank := map[string]int{}
	// Of a profile that is no more, phases are in the order of two that have most.
	for _, profile := range []string{r.Campaign.Profile, "loads", "rivals"} {
		s, err := spec.Profile(profile)
		if err != nil {
			continue
		}
		all, _ := s.Cells()
		for _, c := range all {
			if _, ok := rank[c.Phase.Name]; !ok {
				rank[c.Phase.Name] = len(rank)
			}
		}
	}
	// A variant stands behind the phase that it is one of.
	place := func(phase string) int {
		for name := phase; ; {
			if n, ok := rank[name]; ok {
				return n
			}
			end := strings.LastIndex(name, "-")
			if end < 0 {
				return len(rank)
			}
			name = name[:end]
		}
	}
	var out []spec.Cell
	seen := map[string]bool{}
	for i := range r.Samples {
		c := r.Samples[i].Cell
		if (kind == "" || c.Workload.Kind == kind) && !seen[c.ID()] {
			seen[c.ID()] = true
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b spec.Cell) int {
		return cmp.Or(a.Workload.Pods-b.Workload.Pods, cmp.Compare(a.Workload.Name, b.Workload.Name), cmp.Compare(a.Rate, b.Rate),
			place(a.Phase.Name)-place(b.Phase.Name), cmp.Compare(a.Phase.Name, b.Phase.Name))
	})
	return out
}

// values are a metric of a cell in the order of its rounds.
func values(r *record.Results, c *spec.Cell, metric string) []float64 {
	byRound := r.Values(c.ID(), metric)
	out := make([]float64, 0, len(byRound))
	for round := 0; len(out) < len(byRound); round++ {
		if v, ok := byRound[round]; ok {
			out = append(out, v)
		}
	}
	return out
}

func summary(r *record.Results, c *spec.Cell, metric string) stats.Summary {
	return stats.Summarise(values(r, c, metric))
}

// metricsOf are the names of all metrics of a cell, in order.
func metricsOf(r *record.Results, c *spec.Cell) []string {
	names := map[string]bool{}
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Good() && s.Cell.ID() == c.ID() {
			for name := range s.Metrics {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
