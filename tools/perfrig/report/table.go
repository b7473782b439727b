// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package report renders a campaign: tables for a terminal and for a Markdown
// page, every number as CSV, the bars that podweir is held to, and charts.
package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Table is one of a report.
type Table struct {
	Title, Note string
	Header      []string
	Rows        [][]string
}

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

const mega = 1e-6

var views = []view{
	{
		spec.Mixed, "Light flows beside bulk in both directions",
		"150 requests/s on fresh connections, 4 kB each, and 200 requests/s of 64 B on a kept connection, to the pod and to an unlimited bystander at the same time. Milliseconds. " +
			"Wire is all that the pod sent and received meanwhile, Mbit/s.",
		[]column{
			{"fresh p50", "open_p50_ms", 1, 2}, {"p99", "open_p99_ms", 1, 2},
			{"bystander p99", "open_bystander_p99_ms", 1, 2}, {"errors", "open_errors_count", 1, 0},
			{"kept p50", "kept_p50_ms", 1, 2}, {"p99", "kept_p99_ms", 1, 2},
			{"bystander p99", "kept_bystander_p99_ms", 1, 2}, {"errors", "kept_errors_count", 1, 0},
			{"bulk out", "egress_elephant_goodput_bits_per_second", mega, 2}, {"in", "ingress_elephant_goodput_bits_per_second", mega, 2},
			{"wire out", "egress_open_wire_bits_per_second", mega, 2}, {"in", "ingress_open_wire_bits_per_second", mega, 2},
		},
	},
	{
		spec.Mixed, "The same in a closed loop",
		"Ten clients each, a fresh connection for every request of 4 kB: the shape that is published for such plugins. What a pod answers here is a matter of what it may send: see the wire beside it.",
		[]column{
			{"answers/s", "closed_requests_per_second", 1, 0}, {"bystander's", "closed_bystander_requests_per_second", 1, 0},
			{"ratio", "closed_requests_ratio", 1, 3},
			{"p99", "closed_p99_ms", 1, 2}, {"max", "closed_max_ms", 1, 0}, {"bystander p99", "closed_bystander_p99_ms", 1, 2},
			{"errors", "closed_errors_count", 1, 0},
			{"wire out", "egress_closed_wire_bits_per_second", mega, 2}, {"in", "ingress_closed_wire_bits_per_second", mega, 2},
			{"worst 1 s out", "egress_worst_second_share", 1, 4}, {"in", "ingress_worst_second_share", 1, 4},
		},
	},
	{
		spec.Latency, "A kept connection beside one bulk flow",
		"200 requests/s of 64 B, alone and then beside bulk, there in turns with the unlimited bystander's. Milliseconds; bulk as Mbit/s on the wire.",
		[]column{
			{"idle p50", "idle_p50_ms", 1, 3}, {"idle p99", "idle_p99_ms", 1, 2},
			{"p50", "kept_p50_ms", 1, 3}, {"p99", "kept_p99_ms", 1, 2}, {"max", "kept_max_ms", 1, 1},
			{"bystander p50", "kept_bystander_p50_ms", 1, 3}, {"p99", "kept_bystander_p99_ms", 1, 2},
			{"p99 ÷ bystander's", "kept_p99_over_bystander_ratio", 1, 2}, {"errors", "kept_errors_count", 1, 0},
			{"bulk", "DIR_wire_bits_per_second", mega, 1},
		},
	},
	{
		spec.Sweep, "One load as fast as it gets",
		"Goodput by iperf3's receiver; wire, worst second, excess (the smallest burst that explains every window) and use by the wire meter behind the shaper. Unshaped is what the unlimited pod carried in the same run.",
		[]column{
			{"goodput, Mbit/s", "DIR_goodput_bits_per_second", mega, 2}, {"wire", "DIR_wire_bits_per_second", mega, 2},
			{"used", "DIR_used_share", 1, 4}, {"worst 1 s", "DIR_worst_second_share", 1, 4}, {"allowed", "DIR_allowed_second_share", 1, 4},
			{"excess, ms", "DIR_excess_ms", 1, 1}, {"unshaped, Mbit/s", "carried_bits_per_second", mega, 0},
			{"sent again, first 3 s", "early_retransmits_count", 1, 0}, {"after", "late_retransmits_count", 1, 0}, {"after, %", "late_retransmits_percent", 1, 3},
		},
	},
}

// Tables are those of all kinds of workload that were measured.
func Tables(r *record.Results) []Table {
	var out []Table
	for _, v := range views {
		if t := v.table(r); len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return append(out, noise(r))
}

// cellsOf are the cells that were measured, each once: workloads in the order
// of their names, rates ascending, phases as the spec has them.
func cellsOf(r *record.Results, kind spec.WorkloadKind) []spec.Cell {
	rank := map[string]int{}
	if s, err := spec.Profile(r.Campaign.Profile); err == nil {
		all, _ := s.Cells()
		for _, c := range all {
			if _, ok := rank[c.Phase.Name]; !ok {
				rank[c.Phase.Name] = len(rank)
			}
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
		return rank[a.Phase.Name] - rank[b.Phase.Name]
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
		t.Rows = append(t.Rows, append(append(row, fmt.Sprint(n)), numbers...))
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
			why = "failed: " + s.Failed
		}
	}
	return why
}

// noise says how much of the machine others had.
func noise(r *record.Results) Table {
	t := Table{
		Title: "How quiet the machine was", Header: []string{"", "n", "mean", "median", "max"},
		Note: "In each run: processor time of processes that are none of the rig's, in cores, and the load average of a minute before it.",
	}
	var foreign, load []float64
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Good() {
			foreign, load = append(foreign, s.Foreign), append(load, s.LoadBefore)
		}
	}
	for name, v := range map[string][]float64{"cores taken by others": foreign, "load average before": load} {
		s := stats.Summarise(v)
		t.Rows = append(t.Rows, []string{
			name, fmt.Sprint(s.N), fmt.Sprintf("%.2f", s.Mean),
			fmt.Sprintf("%.2f", s.Median), fmt.Sprintf("%.2f", s.Max),
		})
	}
	slices.SortFunc(t.Rows, func(a, b []string) int { return slices.Compare(a, b) })
	return t
}
