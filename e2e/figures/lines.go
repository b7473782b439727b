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

// Lines is a chart of numbers against another, with the name of each line at its end.
type Lines struct {
	Title string
	// X and Y name the axes, with their units. Y begins at 0.
	X, Y string
	// LogX makes the horizontal axis logarithmic: numbers of 0 or less are not drawn.
	LogX bool
	// LimitY is a number of the vertical axis that gets a line of its own, 0 for none.
	LimitY float64
	// MostY is where the vertical axis ends and larger numbers are drawn, 0 for what
	// the lines need.
	MostY float64
	Lines []Line
}

// Line is a series of points with ascending X. The names of podweir's begin with
// "podweir".
type Line struct {
	Name   string
	Points []Point
}

// Point is in the units of the axes; so is the bar of its Y.
type Point struct {
	X, Y float64
	Bar
}

// Sizes of a chart of lines. A bold letter of a name is at most letterWidth wide.
const (
	linesLeft   = 60
	linesRight  = 570
	linesTop    = 58
	linesBottom = 360
	linesHeight = 410
	labelLeft   = linesRight + 14
	labelHeight = 16
	letterWidth = 8
)

const (
	lineStyle = ".limit{stroke:#cf222e;stroke-width:1.5}.line{fill:none;stroke:#8c959f;stroke-width:1.5}.line.ours{stroke:#0969da;stroke-width:2}\n"
	lineDark  = "\n.limit{stroke:#ff7b72}.line{stroke:#768390}.line.ours{stroke:#4493f8}"
)

// dashes tell lines of one colour apart.
var dashes = []string{"", "7 3", "2 3"}

// WriteSVG fails if no line has a point.
func (c *Lines) WriteSVG(out io.Writer) error {
	x := scale{from: math.Inf(1), to: math.Inf(-1), pixelFrom: linesLeft, pixelTo: linesRight, logarithmic: c.LogX}
	y := scale{pixelFrom: linesBottom, pixelTo: linesTop, to: c.MostY}
	drawable := make([]Line, 0, len(c.Lines))
	for _, l := range c.Lines {
		l.Points = slices.DeleteFunc(slices.Clone(l.Points), func(p Point) bool {
			return math.IsNaN(p.X) || math.IsNaN(p.Y) || c.LogX && p.X <= 0
		})
		if len(l.Points) == 0 {
			continue
		}
		drawable = append(drawable, l)
		for i, p := range l.Points {
			x.from, x.to = min(x.from, p.X), max(x.to, p.X)
			if c.MostY == 0 {
				y.to = max(y.to, p.Y, p.High)
			} else {
				l.Points[i].Y = min(p.Y, c.MostY)
			}
		}
	}
	if len(drawable) == 0 {
		return fmt.Errorf("none of %d lines has a point", len(c.Lines))
	}
	var drawn chart
	c.axes(&drawn, &x, &y)
	ends := make([]end, len(drawable))
	width := len(c.Title)
	for i, l := range drawable {
		width = max(width, labelLeft/letterWidth+len(l.Name)+2)
		var points []string
		for _, p := range l.Points {
			if p.drawn() {
				drawn.line(series("bar", l.Name), x.at(p.X), y.at(p.Low), x.at(p.X), y.at(p.High))
				drawn.dot(l.Name, x.at(p.X), y.at(p.Y), 3)
			}
			points = append(points, number(x.at(p.X))+","+number(y.at(p.Y)))
		}
		fmt.Fprintf(&drawn.body, "<polyline class=%q stroke-dasharray=%q points=%q/>\n", series("line", l.Name), dashes[i%len(dashes)], strings.Join(points, " "))
		last := l.Points[len(l.Points)-1]
		ends[i] = end{x.at(last.X), y.at(last.Y)}
	}
	c.labels(&drawn, drawable, ends)
	return drawn.writeTo(out, float64(width*letterWidth), linesHeight, lineStyle, lineDark)
}

func (c *Lines) axes(out *chart, x, y *scale) {
	out.text("head", "", 12, 22, c.Title)
	for _, tick := range x.widen() {
		out.line("grid", x.at(tick), linesTop, x.at(tick), linesBottom)
		out.text("small", "middle", x.at(tick), linesBottom+16, fmt.Sprintf("%.6g", tick))
	}
	for _, tick := range y.widen() {
		out.line("grid", linesLeft, y.at(tick), linesRight, y.at(tick))
		out.text("small", "end", linesLeft-8, y.at(tick)+textMiddle, fmt.Sprintf("%.6g", tick))
	}
	if c.LimitY > 0 {
		out.line("limit", linesLeft, y.at(c.LimitY), linesRight, y.at(c.LimitY))
		out.text("small", "end", linesRight-4, y.at(c.LimitY)-textMiddle, "limit")
	}
	out.text("small", "middle", (linesLeft+linesRight)/2, linesBottom+36, c.X)
	out.text("small", "", 12, linesTop-10, c.Y)
}

// end is where a line ends, or a dot is, in pixels.
type end struct{ x, y float64 }

// labels writes the names at the right, with a line from the end of each.
func (c *Lines) labels(out *chart, lines []Line, ends []end) {
	places := apart(ends, linesBottom)
	for i, l := range lines {
		out.line("grid", ends[i].x, ends[i].y, linesRight+10, places[i])
		out.text(series("label small", l.Name), "", labelLeft, places[i]+textMiddle, l.Name)
	}
}

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
