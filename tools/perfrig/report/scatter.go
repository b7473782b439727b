// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/step"
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

// Dot is one series. It is not drawn if X or Y is 0 or less. The name of podweir's begins
// with "podweir".
type Dot struct {
	Name string
	X, Y float64
	// Low and High are what the samples of X reach from and to. Of one sample there is no bar.
	Low, High float64
	// Text is what is written behind the name.
	Text string
}

// Sizes of a panel, in pixels at full size.
const (
	scatterWidth  = 760
	scatterLeft   = 70
	scatterRight  = 740
	scatterHeight = 190
	panelTop      = 34
	panelBottom   = 44
	noteHeight    = 18
	dotRadius     = 6
	// textMiddle moves a text down so that its middle is at a height.
	textMiddle = 5
	// labelHeight is the least distance between two names.
	labelHeight = 16
)

// head begins an image. Its style gives the series of podweir one strong colour and all others
// grey, in light and in dark mode: a browser applies the query to an image, too.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%[1]s" height="%[2]s" role="img">
<style>
text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:#24292f}
.head{font-weight:600}.small{font-size:12px;fill:#57606a}text.ours{fill:#0969da}.label.ours{font-weight:600}
.dot{fill:#8c959f}.dot.ours{fill:#0969da}.grid{stroke:#d0d7de}
.bar{stroke:#8c959f;stroke-width:2}.bar.ours{stroke:#0969da}
.mark{stroke:#57606a;stroke-dasharray:4 3}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}text.ours{fill:#4493f8}
.dot{fill:#768390}.dot.ours{fill:#4493f8}.grid{stroke:#3d444d}
.bar{stroke:#768390}.bar.ours{stroke:#4493f8}
.mark{stroke:#9198a1}}
</style>
`

// WriteSVG fails if there is nothing to draw.
func (c *Scatter) WriteSVG(out io.Writer) error {
	x := scale{from: math.Inf(1), pixelFrom: scatterLeft, pixelTo: scatterRight}
	y := scale{from: math.Inf(1)}
	for _, p := range c.Panels {
		for _, d := range p.drawable() {
			x.holds(d.X, d.Low, d.High)
			y.holds(d.Y)
		}
		x.holds(p.Mark)
	}
	if y.to == 0 {
		return fmt.Errorf("none of %d panels has a dot to draw", len(c.Panels))
	}
	across, up := x.widen(), y.widen()
	var drawn drawing
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
	return step.Err(fmt.Fprintf(out, head+"%[3]s</svg>\n", number(scatterWidth), number(top+noteHeight), drawn.String()))
}

func (c *Scatter) grid(out *drawing, p *Panel, x, y *scale, across, up []float64) {
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

func (p *Panel) drawable() []Dot {
	return slices.DeleteFunc(slices.Clone(p.Dots), func(d Dot) bool { return d.X <= 0 || d.Y <= 0 })
}

// draw has names to the right of dots in the left half, and to the left of others.
func (p *Panel) draw(out *drawing, x, y *scale) {
	dots := p.drawable()
	places := apart(dots, y)
	for i, d := range dots {
		atX, atY := x.at(d.X), y.at(d.Y)
		of := func(class string) string { // one of SVG for what is podweir's or another's
			if strings.HasPrefix(d.Name, "podweir") {
				class += " ours"
			}
			return class
		}
		if d.High > d.Low {
			out.line(of("bar"), x.at(max(d.Low, x.from)), atY, x.at(d.High), atY)
		}
		fmt.Fprintf(out, "<circle class=%q cx=\"%s\" cy=\"%s\" r=\"%d\"/>\n", of("dot"), number(atX), number(atY), dotRadius)
		side, anchor := 1.0, ""
		if atX > (scatterLeft+scatterRight)/2 {
			side, anchor = -1, "end"
		}
		label := atX + side*(dotRadius+14)
		out.line("grid", atX+side*dotRadius, atY, label-side*3, places[i])
		out.text(of("label"), anchor, label, places[i]+textMiddle, d.Name+": "+d.Text)
	}
}

// apart returns the heights of names, each as near to its dot as the others leave room
// above the foot. Of dots at one height the one that is last comes first.
func apart(dots []Dot, y *scale) []float64 {
	order := make([]int, len(dots))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(y.at(dots[a].Y), y.at(dots[b].Y)), cmp.Compare(dots[b].X, dots[a].X))
	})
	at := math.Inf(-1)
	places := make([]float64, len(dots))
	for _, i := range order {
		at = max(y.at(dots[i].Y), at+labelHeight)
		places[i] = at
	}
	// What would run off the foot moves up.
	foot := y.pixelFrom - textMiddle
	for _, i := range slices.Backward(order) {
		places[i] = min(places[i], foot)
		foot = places[i] - labelHeight
	}
	return places
}

// drawing is the body of an image; what is drawn later lies above. Classes and anchors are SVG's.
type drawing struct{ strings.Builder }

func (d *drawing) text(class, anchor string, x, y float64, text string) {
	if anchor != "" {
		anchor = fmt.Sprintf(" text-anchor=%q", anchor)
	}
	fmt.Fprintf(d, "<text class=%q%s x=\"%s\" y=\"%s\">%s</text>\n", class, anchor, number(x), number(y), html.EscapeString(text))
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(d, "<line class=%q x1=\"%s\" x2=\"%s\" y1=\"%s\" y2=\"%s\"/>\n", class, number(x1), number(x2), number(y1), number(y2))
}

// number is a coordinate to a tenth of a pixel.
func number(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// scale maps numbers between two ends, by their logarithms, to pixels between two others.
type scale struct {
	from, to           float64
	pixelFrom, pixelTo float64
}

// holds moves the ends out to numbers above 0.
func (s *scale) holds(numbers ...float64) {
	for _, v := range numbers {
		if v > 0 {
			s.from, s.to = min(s.from, v), max(s.to, v)
		}
	}
}

func (s *scale) at(v float64) float64 {
	from := math.Log10(s.from)
	return s.pixelFrom + (math.Log10(v)-from)/(math.Log10(s.to)-from)*(s.pixelTo-s.pixelFrom)
}

// widen moves the ends out to powers of ten, and returns those of the grid.
func (s *scale) widen() (ticks []float64) {
	first, last := math.Floor(math.Log10(s.from)), math.Ceil(math.Log10(s.to))
	for e := first; e <= max(last, first+1); e++ {
		ticks = append(ticks, math.Pow(10, e))
	}
	s.from, s.to = ticks[0], ticks[len(ticks)-1]
	return ticks
}
