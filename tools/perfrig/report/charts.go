// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/figures"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Chart is a file that was drawn.
type Chart struct{ Title, File string }

// drawAll draws a chart of every distribution and series that several phases
// have of one workload and cap.
func drawAll(dir string, r *record.Results) ([]Chart, error) {
	var out []Chart
	for _, kind := range kinds(r) {
		for _, g := range groupsOf(cellsOf(r, kind)) {
			for _, name := range latencyNames(r, g) {
				c := Chart{
					Title: fmt.Sprintf("%s at %s, %s: share of requests by latency", g[0].Workload.Name, capOf(g), name),
					File:  fileName(g, name, "latency"),
				}
				if err := c.draw(dir, cdfs(r, g, name), latencyAxes); err != nil {
					return nil, err
				}
				out = append(out, c)
			}
			for _, name := range []string{"egress", "ingress"} {
				lines := rates(r, g, name)
				if len(lines) == 0 {
					continue
				}
				c := Chart{
					Title: fmt.Sprintf("%s at %s, first round: rate on the wire, %s (cut at %d times the cap)",
						g[0].Workload.Name, capOf(g), name, rateCut),
					File: fileName(g, name, "rate"),
				}
				if err := c.draw(dir, lines, rateAxes(g)); err != nil {
					return nil, err
				}
				out = append(out, c)
			}
		}
	}
	costs, err := drawFlowCost(dir, r)
	if err != nil {
		return nil, err
	}
	pods, err := drawPods(dir, r)
	return slices.Concat(out, costs, pods), err
}

// groupsOf are the cells of one workload and cap; the unshaped phase is in all
// of its workload's.
func groupsOf(cells []spec.Cell) [][]spec.Cell {
	var out [][]spec.Cell
	var free []spec.Cell
	for _, c := range cells {
		if c.Rate == 0 {
			free = append(free, c)
			continue
		}
		if n := len(out); n > 0 && out[n-1][0].Workload.Name == c.Workload.Name && capped(out[n-1]) == c.Rate {
			out[n-1] = append(out[n-1], c)
			continue
		}
		out = append(out, []spec.Cell{c})
	}
	for i, g := range out {
		for _, f := range free {
			if f.Workload.Name == g[0].Workload.Name {
				out[i] = append(out[i], f)
			}
		}
	}
	return out
}

func capped(g []spec.Cell) uint64 { return g[0].Rate }

func capOf(g []spec.Cell) string { return spec.RateName(capped(g)) }

func fileName(g []spec.Cell, name, what string) string {
	return strings.Join([]string{g[0].Workload.Name, capOf(g), name, what}, "-") + ".svg"
}

// latencyNames are the distributions of the pod; the bystander's are lines of
// no phase.
func latencyNames(r *record.Results, g []spec.Cell) []string {
	var out []string
	for _, name := range []string{"open", "kept", "closed"} {
		if len(cdfs(r, g, name)) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// cdfs are the distributions of each phase, and that of the bystander beside
// the first of podweir's.
func cdfs(r *record.Results, g []spec.Cell, name string) []figures.Line {
	var out []figures.Line
	bystander := false
	for _, c := range g {
		l, ok := distribution(r, &c, name)
		if !ok {
			continue
		}
		out = append(out, l)
		if c.Phase.Kind == spec.Podweir && !bystander {
			if l, ok := distribution(r, &c, name+"_bystander"); ok {
				l.Name, bystander = "bystander of "+l.Name, true
				out = append(out, l)
			}
		}
	}
	return out
}

// cdfStep is the least share between two points of a distribution.
const cdfStep = 0.002

// distribution joins the rounds of a cell; ok is false if there is none.
func distribution(r *record.Results, c *spec.Cell, name string) (l figures.Line, ok bool) {
	all := stats.NewHistogram(nil)
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Good() && s.Cell.ID() == c.ID() && s.Latencies[name] != nil {
			all.Add(s.Latencies[name])
		}
	}
	l.Name = c.Phase.Name
	drawn := -1.0
	for _, p := range all.Distribution() {
		// A step that is less than a line's width is not seen.
		if p.Share-drawn < cdfStep && p.Share < 1 {
			continue
		}
		drawn = p.Share
		l.Points = append(l.Points, figures.Point{X: max(float64(p.Latency)/1e6, 0.01), Y: p.Share})
	}
	return l, all.Count() > 0
}

// rates are the series of the first round. An unlimited pod's would hide the
// others.
func rates(r *record.Results, g []spec.Cell, name string) []figures.Line {
	var out []figures.Line
	for _, c := range g {
		for i := range r.Samples {
			s := &r.Samples[i]
			series, ok := s.Series[name]
			if !ok || s.Round != 0 || s.Cell.ID() != c.ID() || c.Rate == 0 {
				continue
			}
			l := figures.Line{Name: c.Phase.Name}
			for i, v := range series.Values {
				l.Points = append(l.Points, figures.Point{X: float64(i) * series.EverySeconds, Y: v / 1e6})
			}
			out = append(out, l)
		}
	}
	return out
}

var latencyAxes = figures.Lines{X: "latency, ms", Y: "share of requests", LogX: true}

// rateCut is where the axis of rates ends, in caps: the burst that containerd
// fills in would hide everything else.
const rateCut = 3

func rateAxes(g []spec.Cell) figures.Lines {
	return figures.Lines{X: "s", Y: "Mbit/s", LimitY: float64(capped(g)) / 1e6, MostY: rateCut * float64(capped(g)) / 1e6}
}

// draw writes the chart of these lines, with the axes of another.
func (c *Chart) draw(dir string, lines []figures.Line, axes figures.Lines) error {
	axes.Title, axes.Lines = c.Title, lines
	var drawn bytes.Buffer
	if err := axes.WriteSVG(&drawn); err != nil {
		return fmt.Errorf("chart %s: %w", c.File, err)
	}
	return os.WriteFile(filepath.Join(dir, c.File), drawn.Bytes(), 0o644)
}
