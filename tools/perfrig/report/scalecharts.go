// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"cmp"
	"slices"

	"github.com/podweir/podweir/e2e/figures"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// drawFlowCost draws what a packet costs against the number of flows; nothing
// if no line has two points.
func drawFlowCost(dir string, r *record.Results) ([]Chart, error) {
	lines := flowCosts(r)
	if len(lines) == 0 {
		return nil, nil
	}
	c := Chart{Title: "Time of podweir's programs for a packet against the number of flows", File: "flows-cost.svg"}
	return []Chart{c}, c.draw(dir, lines, figures.Lines{X: "flows", Y: "ns", LogX: true})
}

// flowCosts has a line for each phase, cap and direction. Fresh flows are a
// number of another kind, at another rate of packets.
func flowCosts(r *record.Results) []figures.Line {
	var out []figures.Line
	at := map[string]int{}
	for _, c := range cellsOf(r, spec.Flows) {
		w := &c.Workload
		s := summary(r, &c, "packet_cost_ns")
		if s.N == 0 || w.PacketsPerSecond*w.BulkSeconds <= float64(w.Flows) {
			continue
		}
		name := c.Phase.Name + ", " + w.Direction + " at " + spec.RateName(c.Rate)
		i, ok := at[name]
		if !ok {
			i = len(out)
			at[name] = i
			out = append(out, figures.Line{Name: name})
		}
		point := meanPoint(s, 1)
		point.X = float64(w.Flows)
		out[i].Points = append(out[i].Points, point)
	}
	out = slices.DeleteFunc(out, func(l figures.Line) bool { return len(l.Points) < 2 })
	for _, l := range out {
		slices.SortFunc(l.Points, func(a, b figures.Point) int { return cmp.Compare(a.X, b.X) })
	}
	return out
}
