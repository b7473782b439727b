// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package figures_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/podweir/podweir/e2e/figures"
)

// drawn is the chart as text; it has to be well-formed XML.
func drawn(t *testing.T, c interface{ WriteSVG(io.Writer) error }) string {
	t.Helper()
	var out strings.Builder
	if err := c.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return out.String()
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, out.String())
		}
	}
}

func TestLines(t *testing.T) {
	svg := drawn(t, &figures.Lines{Title: "a < b", X: "ms", Y: "share", LogX: true, LimitY: 0.5, MostY: 1, Lines: []figures.Line{
		{Name: "podweir strict", Points: []figures.Point{{X: 1, Y: 0.5}, {X: 100, Y: 3}}},
		{Name: "plain <queue>", Points: []figures.Point{{X: 0, Y: 0}, {X: 10, Y: math.NaN()}, {X: 10, Y: 1}}},
		{Name: "absent"},
	}})
	for _, want := range []string{
		"a &lt; b", ">plain &lt;queue&gt;<", `<polyline class="line ours"`, `class="label small ours"`,
		// Two decades on 510 pixels from 60, and the whole height for what is cut.
		`points="60,209 570,58"`, `points="315,58"`, `<line class="limit" x1="60" x2="570" y1="209"`,
		">0.2<", ">100<",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("the chart lacks %q:\n%s", want, svg)
		}
	}
	// Later than the one of lines, such a rule would fill the area below them.
	if regexp.MustCompile(`[}\s]\.ours\{`).MatchString(svg) {
		t.Error("a rule of style fills whatever is podweir's, lines included")
	}
	if strings.Contains(svg, "absent") {
		t.Error("a line without points has a name in the chart")
	}
}

// TestLabelsKeepApart: lines that end at one place have names below one another, the
// last of them above the foot.
func TestLabelsKeepApart(t *testing.T) {
	c := &figures.Lines{X: "s", Y: "x"}
	for _, name := range []string{"a", "b", "c"} {
		c.Lines = append(c.Lines, figures.Line{Name: name, Points: []figures.Point{{X: 0, Y: 1}, {X: 1, Y: 0}}})
	}
	places := regexp.MustCompile(`class="label small" x="584" y="(\d+)"`).FindAllStringSubmatch(drawn(t, c), -1)
	var got []string
	for _, p := range places {
		got = append(got, p[1])
	}
	if strings.Join(got, " ") != "333 349 365" {
		t.Errorf("the names are at %v, want 16 pixels apart, the last at the foot", got)
	}
}

// TestBars: a number with samples has a bar over them, one without has none.
func TestBars(t *testing.T) {
	dots := drawn(t, &figures.Scatter{X: "ms", Y: "share", Panels: []figures.Panel{
		{Dots: []figures.Dot{
			{Name: "podweir", X: 10, Y: 1, Bar: figures.Bar{Low: 1, High: 100}, Text: "ten"},
			{Name: "one sample", X: 5, Y: 1, Bar: figures.Bar{Low: 5, High: 5}},
			{Name: "no sample", X: 5, Y: 1},
		}},
	}})
	lines := drawn(t, &figures.Lines{X: "pods", Y: "ns", Lines: []figures.Line{
		{Name: "queue", Points: []figures.Point{{X: 0, Y: 2, Bar: figures.Bar{Low: 1, High: 5}}, {X: 1, Y: 2}}},
	}})
	for chart, want := range map[string]string{
		dots:  `<line class="bar ours" x1="70" x2="740" y1="232" y2="232"/>`,
		lines: `<line class="bar" x1="60" x2="60" y1="299.6" y2="58"/>`,
	} {
		if !strings.Contains(chart, want) {
			t.Errorf("the chart lacks %q:\n%s", want, chart)
		}
		if got := strings.Count(chart, `class="bar`); got != 1 {
			t.Errorf("the chart has %d bars, want 1:\n%s", got, chart)
		}
	}
}

// TestScatter: both axes have names, what got no answer is a ring, names that are at one
// place keep apart and lead away from the nearer edge, and 0 is nowhere.
func TestScatter(t *testing.T) {
	svg := drawn(t, &figures.Scatter{X: "p99, ms", Y: "worst second", Note: "one run\nof two", Panels: []figures.Panel{{
		Title: "limit", Mark: 2, MarkName: "no limit",
		Dots: []figures.Dot{
			{Name: "podweir <strict>", X: 1, Y: 1, Text: "fast"},
			{Name: "policer", X: 1, Y: 1, Text: "above"},
			{Name: "plugin", X: 1000, Y: 100, Text: "no answer", Unanswered: true},
			{Name: "absent", X: 0, Y: 1},
		},
	}}})
	for _, want := range []string{
		">p99, ms<", ">vertical: worst second<", ">no limit<", ">of two<", `<circle class="ring" cx="740" cy="42"`,
		`<circle class="dot ours" cx="70" cy="232"`, `text-anchor="end" x="720" y="47">plugin: no answer<`,
		`x="90" y="216">podweir &lt;strict&gt;: fast<`, `x="90" y="232">policer: above<`,
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("the chart lacks %q:\n%s", want, svg)
		}
	}
	if strings.Contains(svg, "absent") {
		t.Error("a series without a number is in the chart")
	}
}

// TestLongNames are inside of the picture.
func TestLongNames(t *testing.T) {
	svg := drawn(t, &figures.Lines{Lines: []figures.Line{{Name: strings.Repeat("m", 60), Points: []figures.Point{{X: 1, Y: 1}}}}})
	wide := regexp.MustCompile(`width="(\d+)"`).FindStringSubmatch(svg)
	if width, err := strconv.Atoi(wide[1]); err != nil || width < 584+60*8 {
		t.Errorf("the chart is %q wide, and its name ends further right", wide[1])
	}
}

// TestNothingToDraw is an error, not an empty picture.
func TestNothingToDraw(t *testing.T) {
	for _, c := range []interface{ WriteSVG(io.Writer) error }{
		&figures.Lines{Lines: []figures.Line{{Name: "a"}, {Name: "b", Points: []figures.Point{{X: 1, Y: math.NaN()}}}}},
		&figures.Scatter{Panels: []figures.Panel{{Title: "p", Dots: []figures.Dot{{Name: "a", X: 1}}}}},
	} {
		if err := c.WriteSVG(io.Discard); err == nil {
			t.Errorf("%+v was drawn", c)
		}
	}
}
