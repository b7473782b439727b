// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package figures

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Dots is a chart with a dot for each series on a logarithmic axis, and its number
// beside it. All panels have one axis.
type Dots struct {
	Panels []Panel
	// Unit is of the axis; the lines of Note are below the chart.
	Unit, Note string
}

// Panel is a part of a chart, Dots from the largest to the smallest.
type Panel struct {
	Title string
	Dots  []Dot
}

// Dot is one series. A value of 0 or less is not drawn. The name of podweir's begin
// with "podweir".
type Dot struct {
	Name  string
	Value float64
	Bar
	// Text is the number as it is written.
	Text string
}

// from and to are the ends of what is drawn. No logarithmic axis has a 0.
func (d *Dot) from() float64 {
	if d.drawn() && d.Low > 0 {
		return min(d.Low, d.Value)
	}
	return d.Value
}

func (d *Dot) to() float64 { return max(d.High, d.Value) }

// Sizes of a panel. Names of 26 letters fit left of it.
const (
	dotsWidth   = 720
	dotsLeft    = 212
	dotsRight   = 650
	rowHeight   = 26
	panelTop    = 34
	panelBottom = 16
	noteSpace   = 14
	noteHeight  = 18
)

// WriteSVG fails if there is nothing to draw.
func (c *Dots) WriteSVG(out io.Writer) error {
	x := scale{from: math.Inf(1), pixelFrom: dotsLeft, pixelTo: dotsRight, logarithmic: true}
	for _, p := range c.Panels {
		for _, d := range p.Dots {
			if d.Value > 0 {
				x.from, x.to = min(x.from, d.from()), max(x.to, d.to())
			}
		}
	}
	if x.to == 0 {
		return fmt.Errorf("none of %d panels has a value above 0", len(c.Panels))
	}
	ticks := x.widen()
	var drawn chart
	y := 8.0
	for i := range c.Panels {
		y = c.panel(&drawn, &c.Panels[i], &x, ticks, y)
	}
	y += noteSpace
	for line := range strings.Lines(c.Note) {
		y += noteHeight
		drawn.text("small", "", 12, y, strings.TrimSpace(line))
	}
	return drawn.writeTo(out, dotsWidth, y+noteSpace, "", "")
}

// panel draws one below y, and returns where the next one begins.
func (c *Dots) panel(out *chart, p *Panel, x *scale, ticks []float64, y float64) float64 {
	dots := slices.DeleteFunc(slices.Clone(p.Dots), func(d Dot) bool { return d.Value <= 0 })
	slices.SortStableFunc(dots, func(a, b Dot) int { return cmp.Compare(b.Value, a.Value) })
	bottom := y + panelTop + float64(len(dots))*rowHeight
	out.text("head", "", dotsLeft, y+20, p.Title)
	for _, tick := range ticks {
		out.line("grid", x.at(tick), y+panelTop-6, x.at(tick), bottom)
		out.text("small", "middle", x.at(tick), bottom+14, fmt.Sprintf("%g %s", tick, c.Unit))
	}
	for i, d := range dots {
		at := y + panelTop + float64(i)*rowHeight + rowHeight/2
		label := series("label", d.Name)
		out.text(label, "end", dotsLeft-12, at+textMiddle, d.Name)
		if d.drawn() {
			out.line(series("bar", d.Name), x.at(d.from()), at, x.at(d.to()), at)
		}
		out.dot(d.Name, x.at(d.Value), at, 6)
		out.text(label, "", x.at(d.to())+11, at+textMiddle, d.Text)
	}
	return bottom + panelBottom
}
