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

// Scatter is a chart of two numbers against each other, with a dot and a name for each
// series. Both axes are logarithmic, and all panels share them.
type Scatter struct {
	Panels []Panel
	// X and Y name the axes, with their units; the lines of Note are below the chart.
	X, Y, Note string
}

// Panel is a part of a chart. Mark is a number of the horizontal axis that gets a line of
// its own with the text MarkName, 0 for none.
type Panel struct {
	Title    string
	Dots     []Dot
	Mark     float64
	MarkName string
}

// Dot is one series. It is not drawn if X or Y is 0 or less. The name of podweir's begin
// with "podweir". The bar is of X.
type Dot struct {
	Name string
	X, Y float64
	Bar
	// Text is what is written behind the name.
	Text string
}

func (d *Dot) drawable() bool { return d.X > 0 && d.Y > 0 }

// Sizes of a panel.
const (
	scatterWidth  = 760
	scatterLeft   = 70
	scatterRight  = 740
	scatterHeight = 190
	panelTop      = 34
	panelBottom   = 44
	noteHeight    = 18
	dotRadius     = 6
)

const scatterStyle = ".mark{stroke:#57606a;stroke-dasharray:4 3}\n"

// WriteSVG fails if there is nothing to draw.
func (c *Scatter) WriteSVG(out io.Writer) error {
	x := scale{from: math.Inf(1), pixelFrom: scatterLeft, pixelTo: scatterRight}
	y := scale{from: math.Inf(1)}
	for _, p := range c.Panels {
		for _, d := range p.Dots {
			if d.drawable() {
				x.from, x.to = min(x.from, d.X), max(x.to, d.X, d.High)
				y.from, y.to = min(y.from, d.Y), max(y.to, d.Y)
			}
			if d.drawable() && d.drawn() && d.Low > 0 {
				x.from = min(x.from, d.Low)
			}
		}
		if p.Mark > 0 {
			x.from, x.to = min(x.from, p.Mark), max(x.to, p.Mark)
		}
	}
	if y.to == 0 {
		return fmt.Errorf("none of %d panels has a dot to draw", len(c.Panels))
	}
	across, up := x.widen(), y.widen()
	var drawn chart
	top := 8.0
	for i := range c.Panels {
		y.pixelTo, y.pixelFrom = top+panelTop, top+panelTop+scatterHeight
		c.grid(&drawn, &c.Panels[i], &x, &y, across, up)
		c.Panels[i].draw(&drawn, &x, &y)
		top = y.pixelFrom + panelBottom
	}
	for line := range strings.Lines(c.Note) {
		top += noteHeight
		drawn.text("small", "", 12, top, strings.TrimSpace(line))
	}
	return drawn.writeTo(out, scatterWidth, top+noteHeight, scatterStyle, "\n.mark{stroke:#9198a1}")
}

func (c *Scatter) grid(out *chart, p *Panel, x, y *scale, across, up []float64) {
	out.text("head", "", scatterLeft, y.pixelTo-14, p.Title)
	out.text("small", "end", scatterRight, y.pixelTo-14, "vertical: "+c.Y)
	for _, tick := range across {
		out.line("grid", x.at(tick), y.pixelTo, x.at(tick), y.pixelFrom)
		out.text("small", "middle", x.at(tick), y.pixelFrom+15, fmt.Sprintf("%g", tick))
	}
	for _, tick := range up {
		out.line("grid", scatterLeft, y.at(tick), scatterRight, y.at(tick))
		out.text("small", "end", scatterLeft-8, y.at(tick)+textMiddle, fmt.Sprintf("%g ×", tick))
	}
	out.text("small", "middle", (scatterLeft+scatterRight)/2, y.pixelFrom+31, c.X)
	if p.Mark > 0 {
		out.line("mark", x.at(p.Mark), y.pixelTo, x.at(p.Mark), y.pixelFrom)
		out.text("small", "", x.at(p.Mark)+4, y.pixelTo+12, p.MarkName)
	}
}

// draw has names to the right of dots in the left half, and to the left of others.
func (p *Panel) draw(out *chart, x, y *scale) {
	var dots []Dot
	var ends []end
	for _, d := range p.Dots {
		if d.drawable() {
			dots, ends = append(dots, d), append(ends, end{x.at(d.X), y.at(d.Y)})
		}
	}
	places := apart(ends, y.pixelFrom-textMiddle)
	for i, d := range dots {
		at := ends[i]
		if d.drawn() {
			out.line(series("bar", d.Name), x.at(max(d.Low, x.from)), at.y, x.at(d.High), at.y)
		}
		out.dot(d.Name, at.x, at.y, dotRadius)
		side, anchor := 1.0, ""
		if at.x > (scatterLeft+scatterRight)/2 {
			side, anchor = -1, "end"
		}
		label := at.x + side*(dotRadius+14)
		out.line("grid", at.x+side*dotRadius, at.y, label-side*3, places[i])
		out.text(series("label", d.Name), anchor, label, places[i]+textMiddle, d.Name+": "+d.Text)
	}
}

// labelHeight is the least distance between two names.
const labelHeight = 16

// end is where a dot is, in pixels.
type end struct{ x, y float64 }

// apart returns the heights of names, each as near to its end as the others leave room
// above the foot. Of ends at one height the one that is last comes first.
func apart(ends []end, foot float64) []float64 {
	order := make([]int, len(ends))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(ends[a].y, ends[b].y), cmp.Compare(ends[b].x, ends[a].x))
	})
	at := math.Inf(-1)
	places := make([]float64, len(ends))
	for _, i := range order {
		at = max(ends[i].y, at+labelHeight)
		places[i] = at
	}
	// What would run off the foot moves up.
	for _, i := range slices.Backward(order) {
		places[i] = min(places[i], foot)
		foot = places[i] - labelHeight
	}
	return places
}
