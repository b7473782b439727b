// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package report renders a campaign: tables for a terminal and for a Markdown
// page, every number as CSV, the bars that podweir is held to, and charts.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/figures"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Table is one of a report.
type Table = figures.Table

// column is a metric of a table.
type column struct {
	head   string
	metric string // DIR stands for the direction of the workload
	scale  float64
	digits int
}

// view is how the cells of a kind of workload are shown.
type view struct {
	kind    spec.WorkloadKind
	title   string
	note    string
	columns []column
}

// Tables are those of all kinds of workload that were measured.
func Tables(r *record.Results) []Table {
	var out []Table
	for _, v := range views {
		if t := v.table(r); len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	for _, t := range []Table{packets(r), podAdds(r)} {
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return append(out, noise(r))
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
		if c.Workload.Kind == kind && !seen[c.ID()] {
			seen[c.ID()] = true
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b spec.Cell) int {
		if a.Workload.Pods != b.Workload.Pods {
			return a.Workload.Pods - b.Workload.Pods
		}
		if a.Workload.Name != b.Workload.Name {
			if a.Workload.Name < b.Workload.Name {
				return -1
			}
			return 1
		}
		if a.Rate != b.Rate {
			if a.Rate < b.Rate {
				return -1
			}
			return 1
		}
		return cmp.Or(place(a.Phase.Name)-place(b.Phase.Name), strings.Compare(a.Phase.Name, b.Phase.Name))
	})
	return out
}

func (v *view) table(r *record.Results) Table {
	t := Table{Title: v.title, Note: v.note, Header: []string{"workload", "cap", "phase", "n"}}
	for _, c := range v.columns {
		t.Header = append(t.Header, c.head)
	}
	for _, c := range cellsOf(r, v.kind) {
		row := []string{c.Workload.Name, spec.RateName(c.Rate), c.Phase.Name}
		if why := unavailable(r, &c); why != "" {
			row = append(row, "0", why)
			t.Rows = append(t.Rows, append(row, make([]string, len(t.Header)-len(row))...))
			continue
		}
		n := 0
		var numbers []string
		for _, col := range v.columns {
			s := summary(r, &c, col.name(&c))
			n = max(n, s.N)
			numbers = append(numbers, col.format(s))
		}
		// A kind may have several views, each for some of its workloads.
		if n > 0 {
			t.Rows = append(t.Rows, append(append(row, fmt.Sprint(n)), numbers...))
		}
	}
	return t
}

func (c *column) name(cell *spec.Cell) string {
	const dir = "DIR"
	if len(c.metric) > len(dir) && c.metric[:len(dir)] == dir {
		return cell.Workload.Direction + c.metric[len(dir):]
	}
	return c.metric
}

// format writes mean ± standard deviation.
func (c *column) format(s stats.Summary) string {
	if s.N == 0 {
		return "-"
	}
	mean := fmt.Sprintf("%.*f", c.digits, s.Mean*c.scale)
	if s.N < 2 || math.IsNaN(s.Stddev) {
		return mean
	}
	return fmt.Sprintf("%s ± %.*f", mean, c.digits, s.Stddev*c.scale)
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

// unavailable is why a cell has no numbers; "" if it has some.
func unavailable(r *record.Results, c *spec.Cell) string {
	why := ""
	for i := range r.Samples {
		s := &r.Samples[i]
		switch {
		case s.Cell.ID() != c.ID():
		case s.Good():
			return ""
		case s.Unavailable != "":
			why = s.Unavailable
		default:
			why, _, _ = strings.Cut("failed: "+s.Failed, "\n")
		}
	}
	return why
}

// packets has a row for each path of each program.
func packets(r *record.Results) Table {
	t := Table{
		Title:  "Cost per packet",
		Note:   "BPF_PROG_TEST_RUN, minimum of 7 runs of 500,000 TCP packets of 1,500 bytes, less an empty program.",
		Header: []string{"program and path", "n", "ns", "by the light path"},
	}
	for _, c := range cellsOf(r, spec.Packet) {
		for _, name := range metricsOf(r, &c) {
			path, ok := strings.CutSuffix(name, "_cost_ns")
			if !ok {
				continue
			}
			ns, ratio := summary(r, &c, name), summary(r, &c, path+"_cost_ratio")
			t.Rows = append(t.Rows, []string{
				path, fmt.Sprint(ns.N), (&column{scale: 1, digits: 1}).format(ns), (&column{scale: 1, digits: 2}).format(ratio),
			})
		}
	}
	return t
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

// noise says how much of the machine others had.
func noise(r *record.Results) Table {
	t := Table{
		Title: "How quiet the machine was", Header: []string{"", "n", "mean", "median", "max"},
		Note: "In each run: processor time of processes that are none of the rig's and of the machine's host, in cores, and the load average of a minute before it.",
	}
	var foreign, stolen, load []float64
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Good() {
			foreign, stolen, load = append(foreign, s.Foreign), append(stolen, s.Stolen), append(load, s.LoadBefore)
		}
	}
	for name, v := range map[string][]float64{"cores taken by others": foreign, "cores taken by the host": stolen, "load average before": load} {
		s := stats.Summarise(v)
		t.Rows = append(t.Rows, []string{
			name, fmt.Sprint(s.N), fmt.Sprintf("%.2f", s.Mean),
			fmt.Sprintf("%.2f", s.Median), fmt.Sprintf("%.2f", s.Max),
		})
	}
	slices.SortFunc(t.Rows, func(a, b []string) int { return slices.Compare(a, b) })
	return t
}
