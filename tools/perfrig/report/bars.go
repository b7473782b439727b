// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Bar is a number that podweir has promised to reach.
type Bar struct {
	What, Measured, Want string
	Pass                 bool
	// Undecided: the interval of what was measured has room on either side of
	// what is wanted. Single: there is one sample. That has no interval, so the bar
	// is undecided, too, and Beyond says whether the sample misses what is wanted.
	Undecided, Single, Beyond bool
	// Cell is what it was measured on, Kind the name of its [Kind]; it is judged by Value.
	Cell  spec.Cell
	Kind  string
	Value float64
}

// The bars, as the design's ruling on how bars are read has them.
const (
	offeredEnough = 1.2  // of the cap, for the cap to be tested
	carriedEnough = 1.5  // of the cap, for its use to be tested
	leastUse      = 0.97 // of the cap, by one TCP flow
	lightOver     = 2.0  // light p99 by serialisation and the bystander's p99
	lightTuned    = 0.1  // light p99, relative to the tuned reference plugin
	keptOver      = 2.0  // kept p99, relative to the bystander
	keptSlack     = 0.1  // ms
	keptShipped   = 0.05 // kept p99, relative to the shipped reference plugin
	leastAnswers  = 0.95 // of the bystander's answers, under elephants
	lostPer10s    = 10.0 // segments more than the tuned plugin's
	lostPercent   = 0.5  // of segments
	slowStart     = 3.0  // s, during which segments that are sent again are not judged
	lightBits     = 4000 * 8
)

// Bars holds the means of a campaign's rounds, and for caps every sample,
// against what was promised.
func Bars(r *record.Results) []Bar {
	b := &barred{r: r}
	for _, of := range []struct {
		kind  spec.WorkloadKind
		judge func(*barred, *spec.Cell)
	}{
		{spec.Sweep, (*barred).sweep},
		{spec.Mixed, (*barred).mixed},
		{spec.Latency, (*barred).latency},
		{spec.Cost, (*barred).processor},
		{spec.Add, (*barred).addition},
		{spec.Memory, (*barred).memory},
		{spec.Packet, (*barred).packets},
		{spec.Ordinary, (*barred).ordinary},
		{spec.Pods, (*barred).podPackets},
		{spec.Memory, (*barred).agent},
	} {
		for _, c := range b.cells(of.kind) {
			of.judge(b, &c)
		}
	}
	return b.bars
}

type barred struct {
	r    *record.Results
	bars []Bar
}

// cells are those of a kind that the substrate can do: of what a kernel lacks
// nothing was promised.
func (b *barred) cells(kind spec.WorkloadKind) []spec.Cell {
	lacking := map[string]bool{}
	for i := range b.r.Samples {
		if s := &b.r.Samples[i]; s.Unavailable != "" {
			lacking[s.Cell.ID()] = true
		}
	}
	return slices.DeleteFunc(cellsOf(b.r, kind), func(c spec.Cell) bool { return lacking[c.ID()] })
}

func (b *barred) add(pass bool, c *spec.Cell, what, measured, want string) *Bar {
	b.bars = append(b.bars, Bar{What: c.ID() + ": " + what, Measured: measured, Want: want, Pass: pass, Cell: *c})
	return &b.bars[len(b.bars)-1]
}

// atMost adds a bar of a number; format has it with its unit. One that was not measured is a miss.
func (b *barred) atMost(c *spec.Cell, k Kind, what, format string, value, limit float64) {
	b.add(value <= limit, c, what, fmt.Sprintf(format, value), fmt.Sprintf("at most "+format, limit)).of(k, value)
}

// ifMeasured is atMost of a number that not every sample has.
func (b *barred) ifMeasured(c *spec.Cell, k Kind, what, format string, value, limit float64) {
	if !math.IsNaN(value) {
		b.atMost(c, k, what, format, value, limit)
	}
}

func (b *barred) mean(c *spec.Cell, metric string) float64 { return summary(b.r, c, metric).Mean }

// other is the mean of the same workload and rate under another phase.
func (b *barred) other(c *spec.Cell, phase, metric string) float64 {
	o := *c
	o.Phase.Name = phase
	return b.mean(&o, metric)
}

// shipped is the phase of the reference plugin, with the release that the campaign had, and
// tuned that with another burst.
func (b *barred) shipped() string { return reference(b.r) }
func (b *barred) tuned() string   { return reference(b.r) + spec.Tuned }

func reference(r *record.Results) string {
	for i := range r.Samples {
		if name := r.Samples[i].Cell.Phase.Name; strings.HasPrefix(name, "bandwidth-") {
			return strings.TrimSuffix(name, spec.Tuned)
		}
	}
	return spec.BandwidthPlugin
}

func strictOrFlat(c *spec.Cell) bool {
	return c.Phase.Kind == spec.Podweir && c.Phase.Keys["policy"] != "elephants"
}

// caps: every sample's worst second.
func (b *barred) caps(c *spec.Cell, directions ...string) {
	for _, d := range directions {
		worst := stats.Summarise(values(b.r, c, d+"_worst_second_share")).Max
		b.ifMeasured(c, capKind, "worst second "+d, "%.4f of the cap", worst, b.mean(c, d+"_allowed_second_share"))
	}
}

func (b *barred) sweep(c *spec.Cell) {
	d := c.Workload.Direction
	if !strictOrFlat(c) {
		return
	}
	carried := slices.Min(append(values(b.r, c, "carried_bits_per_second"), math.Inf(1))) / float64(c.Rate)
	if carried >= offeredEnough {
		b.caps(c, d)
	}
	if c.Workload.Streams == 1 && carried >= carriedEnough {
		used := b.mean(c, d+"_used_share")
		b.add(used >= leastUse, c, "use of the cap", fmt.Sprintf("%.4f", used), fmt.Sprintf("at least %.2f", leastUse)).
			of(useKind, used)
		b.lost(c)
	}
}

// lost compares segments sent again with the tuned plugin's.
func (b *barred) lost(c *spec.Cell) {
	reference := b.other(c, b.tuned(), "late_retransmits_count")
	got, percent := b.mean(c, "late_retransmits_count"), b.mean(c, "late_retransmits_percent")
	late := c.Workload.BulkSeconds - slowStart
	if math.IsNaN(reference) || late <= 0 {
		return
	}
	per10s := 10 / late
	b.add(got*per10s <= reference*per10s+lostPer10s || percent <= lostPercent, c, "segments retransmitted after 3 s",
		fmt.Sprintf("%.0f in 10 s, %.3f %%", got*per10s, percent),
		fmt.Sprintf("at most %.0f (tuned plugin) + %.0f, or %.1f %%", reference*per10s, lostPer10s, lostPercent)).
		of(lostKind, got*per10s)
}

func (b *barred) mixed(c *spec.Cell) {
	if strictOrFlat(c) {
		b.caps(c, "egress", "ingress")
	}
	switch c.Phase.Name {
	case "podweir-strict":
		p99, reference := b.mean(c, "open_p99_ms"), b.other(c, b.tuned(), "open_p99_ms")
		b.ifMeasured(c, lightKind, "light p99", "%.2f ms", p99, lightOver*(1000*lightBits/float64(c.Rate)+b.mean(c, "open_bystander_p99_ms")))
		if !math.IsNaN(reference) {
			b.add(p99 <= lightTuned*reference, c, "light p99 relative to the tuned plugin",
				fmt.Sprintf("%.4f of %.1f ms", p99/reference, reference), fmt.Sprintf("at most %.1f", lightTuned)).
				of(lightTunedKind, p99/reference)
		}
	case "podweir-elephants":
		ratio := b.mean(c, "closed_requests_ratio")
		b.add(ratio >= leastAnswers, c, "closed-loop answers relative to the bystander", fmt.Sprintf("%.3f", ratio),
			fmt.Sprintf("at least %.2f", leastAnswers)).
			of(answersKind, ratio)
	}
}

func (b *barred) latency(c *spec.Cell) {
	if !strings.HasPrefix(c.Phase.Name, "podweir-strict") && !strings.HasPrefix(c.Phase.Name, "podweir-elephants") {
		return
	}
	p99, bystander := b.mean(c, "kept_p99_ms"), b.mean(c, "kept_bystander_p99_ms")
	b.atMost(c, keptKind, "kept p99", "%.3f ms", p99, keptOver*bystander+keptSlack)
	if reference := b.other(c, b.shipped(), "kept_p99_ms"); !math.IsNaN(reference) {
		b.add(p99 <= keptShipped*reference, c, "kept p99 relative to the shipped plugin",
			fmt.Sprintf("%.4f of %.1f ms", p99/reference, reference), fmt.Sprintf("at most %.2f", keptShipped)).
			of(keptShippedKind, p99/reference)
	}
}
