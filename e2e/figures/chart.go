// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package figures

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// textMiddle moves a text down so that its middle is at a height. All sizes are in a
// chart's own units, which are pixels at full size.
const textMiddle = 5

// chartStyle gives the series of podweir one strong colour and all others grey, in
// light and in dark mode: a browser applies the query to an image, too.
const chartStyle = `<style>
text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:#24292f}
.head{font-weight:600}.small{font-size:12px;fill:#57606a}text.ours{fill:#0969da}.label.ours{font-weight:600}
.dot{fill:#8c959f}.dot.ours{fill:#0969da}.grid{stroke:#d0d7de}
.bar{stroke:#8c959f;stroke-width:2}.bar.ours{stroke:#0969da}
%s@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}text.ours{fill:#4493f8}
.dot{fill:#768390}.dot.ours{fill:#4493f8}.grid{stroke:#3d444d}
.bar{stroke:#768390}.bar.ours{stroke:#4493f8}%s}
</style>
`

// chart is a drawing; what is drawn later lies above.
type chart struct{ body strings.Builder }

// text writes at a place; class and anchor are SVG's.
func (c *chart) text(class, anchor string, x, y float64, text string) {
	if anchor != "" {
		anchor = fmt.Sprintf(" text-anchor=%q", anchor)
	}
	fmt.Fprintf(&c.body, "<text class=%q%s x=\"%s\" y=\"%s\">%s</text>\n", class, anchor, number(x), number(y), html.EscapeString(text))
}

func (c *chart) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.body, "<line class=%q x1=\"%s\" x2=\"%s\" y1=\"%s\" y2=\"%s\"/>\n", class, number(x1), number(x2), number(y1), number(y2))
}

// writeTo writes the whole image, with style for both modes and dark for the dark one.
func (c *chart) writeTo(out io.Writer, width, height float64, style, dark string) error {
	_, err := fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\" width=\"%[1]s\" height=\"%[2]s\" role=\"img\">\n%[3]s%[4]s</svg>\n",
		number(width), number(height), fmt.Sprintf(chartStyle, style, dark), c.body.String())
	return err
}

// dot is the mark of a number.
func (c *chart) dot(name string, x, y, radius float64) {
	fmt.Fprintf(&c.body, "<circle class=%q cx=\"%s\" cy=\"%s\" r=\"%s\"/>\n", series("dot", name), number(x), number(y), number(radius))
}

// Bar is what a number's samples reach from and to. Of one sample, or of none, there
// is no bar to draw.
type Bar struct{ Low, High float64 }

func (b Bar) drawn() bool { return b.High > b.Low }

// number is a coordinate to a tenth of a pixel.
func number(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// series is a class of SVG for what is podweir's or another's.
func series(class, name string) string {
	if strings.HasPrefix(name, "podweir") {
		return class + " ours"
	}
	return class
}

// scale maps numbers between two ends, by their logarithms, to pixels between two others.
type scale struct {
	from, to           float64
	pixelFrom, pixelTo float64
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
