// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"math"

	"github.com/podweir/podweir/e2e/figures"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// scaleChart is a cost against the number of pods, with a line for each phase
// and measure.
type scaleChart struct {
	Chart
	kind     spec.WorkloadKind
	axis     string
	measures []measure
}

// measure is a number of a cell, for the vertical axis; NaN if the cell has none.
type measure struct {
	name string
	of   func(r *record.Results, c *spec.Cell) figures.Point
}

func meanOf(name, metric string, scale float64) measure {
	return measure{name, func(r *record.Results, c *spec.Cell) figures.Point { return meanPoint(summary(r, c, metric), scale) }}
}

// meanPoint has a bar from the least sample to the largest.
func meanPoint(s stats.Summary, scale float64) figures.Point {
	return figures.Point{Y: s.Mean * scale, Bar: figures.Bar{Low: s.Min * scale, High: s.Max * scale}}
}

// quantileOf is of all samples together, so it has no bar.
func quantileOf(name, distribution string, q float64) measure {
	return measure{name, func(r *record.Results, c *spec.Cell) figures.Point {
		return figures.Point{Y: quantile(pooled(r, c, distribution), q)}
	}}
}

var podCharts = []scaleChart{
	{
		Chart{"Time of podweir's programs for a packet, by pods", "pods-programs.svg"}, spec.Pods, "ns", []measure{
			meanOf("light, to all in turns", "spread_light_cost_ns", 1), meanOf("heavy, to all in turns", "spread_heavy_cost_ns", 1),
			meanOf("light, to one", "alone_light_cost_ns", 1), meanOf("heavy, to one", "alone_heavy_cost_ns", 1),
			meanOf("light, to one with empty caches", "evicted_light_cost_ns", 1),
		},
	},
	{
		Chart{"Whole way of a packet, by pods", "pods-way.svg"}, spec.Pods, "ns", []measure{
			meanOf("to all in turns", "spread_light_sender_cost_ns", 1), meanOf("to one", "alone_light_sender_cost_ns", 1),
		},
	},
	{
		Chart{"ADD, one at a time, by pods on the node", "pods-add.svg"}, spec.Adds, "ms", []measure{
			quantileOf("p50", "add_one", 0.5), quantileOf("p99", "add_one", 0.99),
		},
	},
	{
		Chart{"ADD, 50 at once, by pods on the node", "pods-add-together.svg"}, spec.Adds, "ms", []measure{
			quantileOf("p50", "add_together", 0.5), quantileOf("p99", "add_together", 0.99),
		},
	},
	{
		Chart{"Kernel memory for each pod, by pods", "pods-memory.svg"}, spec.Memory, "KiB", []measure{
			meanOf("total", "memory_total_bytes", kibi),
		},
	},
	{
		Chart{"The agent's anonymous memory, by pods", "pods-agent.svg"}, spec.Memory, "MiB", []measure{
			meanOf("most", "agent_rss_max_bytes", mebi), meanOf("median", "agent_rss_p50_bytes", mebi),
		},
	},
}

// drawPods draws those of which there is more than one number of pods.
func drawPods(dir string, r *record.Results) ([]Chart, error) {
	var out []Chart
	for _, c := range podCharts {
		lines := c.lines(r)
		if len(lines) == 0 {
			continue
		}
		if err := c.draw(dir, lines, figures.Lines{X: "pods", Y: c.axis, LogX: true}); err != nil {
			return nil, err
		}
		out = append(out, c.Chart)
	}
	return out, nil
}

// lines are those with at least two points, in the order of the phases and the
// measures.
func (c *scaleChart) lines(r *record.Results) []figures.Line {
	var out []figures.Line
	index := map[string]int{}
	for _, cell := range cellsOf(r, c.kind) {
		for _, m := range c.measures {
			point := m.of(r, &cell)
			if math.IsNaN(point.Y) {
				continue
			}
			name := cell.Phase.Name + ": " + m.name
			at, ok := index[name]
			if !ok {
				at = len(out)
				index[name] = at
				out = append(out, figures.Line{Name: name})
			}
			point.X = float64(cell.Workload.Pods)
			out[at].Points = append(out[at].Points, point)
		}
	}
	kept := out[:0]
	for _, l := range out {
		if len(l.Points) > 1 {
			kept = append(kept, l)
		}
	}
	return kept
}
