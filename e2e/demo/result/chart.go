// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package result

import (
	"fmt"
	"io"
	"slices"

	"github.com/podweir/podweir/e2e/figures"
)

// Chart draws as SVG how long a small request takes beside bulk (p99) against the worst
// second of the limit: a panel for each cap, a dot for each shaper, a line for the row
// without a cap. It fails if there is nothing to draw.
func (r *Report) Chart(out io.Writer) error {
	var caps []uint64
	for i := range r.Rows {
		if limit := r.Rows[i].CapBitRate; limit > 0 && !slices.Contains(caps, limit) {
			caps = append(caps, limit)
		}
	}
	c := figures.Scatter{
		X: "p99 of a new connection with a small request, beside bulk in both directions, ms", Y: "worst second ÷ limit",
		Note: fmt.Sprintf("A ring: no request had an answer within %g s. A copy is the limiter of that product, made without its agent.\n"+
			"One run, so no intervals. %.10s, podweir %.7s, Linux %s", r.Load.RequestTimeoutMilli/1e3, r.Started, r.Machine.Git, r.Machine.Kernel),
	}
	for _, limit := range caps {
		p := figures.Panel{Title: fmt.Sprintf("limit %g Mbit/s", float64(limit)/1e6)}
		for i := range r.Rows {
			switch row := &r.Rows[i]; row.CapBitRate {
			case 0:
				p.Mark, p.MarkName = row.Open.P99, "a pod without a limit: "+Milli(row.Open.P99)+" ms"
			case limit:
				p.Dots = append(p.Dots, row.dot())
			}
		}
		c.Panels = append(c.Panels, p)
	}
	return c.WriteSVG(out)
}

// dot is the place of a row in the chart.
func (r *Row) dot() figures.Dot {
	d := figures.Dot{Name: r.Name(), X: r.Open.P99, Y: r.Worst(FromStart) / float64(r.CapBitRate), Unanswered: r.Open.failed() >= r.Open.Requests}
	d.Text = Milli(d.X) + " ms, " + share(d.Y) + " ×"
	if d.Unanswered {
		d.Text = "no answer, " + share(d.Y) + " ×"
	}
	return d
}
