// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package figures_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/podweir/podweir/e2e/figures"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// drawn is the chart as text; it has to be well-formed XML.
func drawn(t *testing.T, c interface{ WriteSVG(io.Writer) error }) string {
	t.Helper()
	var out strings.Builder
	must.OK(t, c.WriteSVG(&out))
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return out.String()
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, out.String())
		}
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
	if want := `<line class="bar ours" x1="70" x2="740" y1="232" y2="232"/>`; !strings.Contains(dots, want) {
		t.Errorf("the chart lacks %q:\n%s", want, dots)
	}
	if got := strings.Count(dots, `class="bar`); got != 1 {
		t.Errorf("the chart has %d bars, want 1:\n%s", got, dots)
	}
}

// TestScatter: both axes have names, names that are at one
// place keep apart and lead away from the nearer edge, and 0 is nowhere.
func TestScatter(t *testing.T) {
	svg := drawn(t, &figures.Scatter{X: "p99, ms", Y: "worst second", Note: "one run\nof two", Panels: []figures.Panel{{
		Title: "limit", Mark: 2, MarkName: "no limit",
		Dots: []figures.Dot{
			{Name: "podweir <strict>", X: 1, Y: 1, Text: "fast"},
			{Name: "policer", X: 1, Y: 1, Text: "above"},
			{Name: "plugin", X: 1000, Y: 100, Text: "slow"},
			{Name: "absent", X: 0, Y: 1},
		},
	}}})
	for _, want := range []string{
		">p99, ms<", ">vertical: worst second<", ">no limit<", ">of two<", `<circle class="dot" cx="740" cy="42"`,
		`<circle class="dot ours" cx="70" cy="232"`, `text-anchor="end" x="720" y="47">plugin: slow<`,
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
