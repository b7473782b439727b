// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package result

import (
	"fmt"
	"io"
	"slices"

	"github.com/podweir/podweir/e2e/figures"
)

// Chart draws the p99 of a small request beside bulk as SVG: a panel for each cap,
// a dot for each shaper. Rows without a cap are in each panel. It fails if there is
// nothing to draw.
func (r *Report) Chart(out io.Writer) error {
	var caps []uint64
	for i := range r.Rows {
		if limit := r.Rows[i].CapBitRate; limit > 0 && !slices.Contains(caps, limit) {
			caps = append(caps, limit)
		}
	}
	c := figures.Dots{Unit: "ms", Note: fmt.Sprintf(
		"p99 in ms of a new connection with a small request, beside bulk in both directions.\nOne run, so no intervals. %.10s, Linux %s", r.Started, r.Machine.Kernel)}
	for _, limit := range caps {
		p := figures.Panel{Title: fmt.Sprintf("limit %g Mbit/s", float64(limit)/1e6)}
		for i := range r.Rows {
			row := &r.Rows[i]
			name := row.Name()
			switch row.CapBitRate {
			case 0:
				name = "no limit"
			case limit:
			default:
				continue
			}
			p.Dots = append(p.Dots, figures.Dot{Name: name, Value: row.Open.P99, Text: Milli(row.Open.P99)})
		}
		c.Panels = append(c.Panels, p)
	}
	return c.WriteSVG(out)
}
