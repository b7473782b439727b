// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"slices"

	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// The bars of a call beside other loads.
const (
	callLostMost = 0.5 // percent, of a call below its fair share
	callTurns    = 3.0 // p99 by one packet of each active flow, beyond the bystander's
	// lossResolved, in percent, and one full frame at the cap are what a loss and a time
	// may be above another phase's and count as the same.
	lossResolved = 0.1
)

// The bars of bulk. Light packets go first, so bulk itself may wait: into a pod longer, where a packet that
// is lost must cross the network again.
const (
	fairLeast  = 0.95 // Jain's index of up to manyFlows of one kind
	fairMany   = 0.94 // of more of them, below ownWaitFrom
	fairKinds  = 0.75 // of several kinds, into a pod
	manyFlows  = 8
	againMost  = 1.0 // percent of segments, out of a pod and by one flow
	againIn    = 2.0 // into a pod
	againSlow  = 3.0 // the same, below ownWaitFrom
	againBBR   = 8.0 // by several flows of BBR, below bbrFrom
	bbrFrom    = 20_000_000
	ownWaitOut = 25.0 // ms, the median of bulk's own packets out of a pod
	ownWaitIn  = 50.0 // into one
	// ownWaitFrom is from which cap on such packets have a bar.
	ownWaitFrom = 100_000_000
)

// into says that a cell's load is into the pod.
func into(c *spec.Cell) bool { return c.Workload.Direction == "ingress" }

// leastFair is the least of Jain's index of a cell's bulk.
func leastFair(c *spec.Cell) float64 {
	mix := c.Workload.Mix
	switch {
	case len(mix.Bulk) > 1 && into(c):
		return fairKinds
	case mix.BulkFlows() > manyFlows && c.Rate < ownWaitFrom:
		return fairMany
	}
	return fairLeast
}

// mostAgain is how much of a cell's bulk may be sent again, in percent of its segments.
func mostAgain(c *spec.Cell) float64 {
	mix := c.Workload.Mix
	switch {
	case !into(c) || mix.BulkFlows() == 1:
		return againMost
	case c.Rate >= ownWaitFrom:
		return againIn
	case c.Rate < bbrFrom && len(mix.Bulk) == 1 && mix.Bulk[0].Congestion == "bbr":
		return againBBR
	}
	return againSlow
}

// mostWait is how long a cell's bulk may wait, in ms.
func mostWait(c *spec.Cell) float64 {
	if into(c) {
		return ownWaitIn
	}
	return ownWaitOut
}

// Beside a UDP flow that does not slow down: what each of two has at least, and by an equal part what each of more
// has at least, and the UDP flow at most.
const (
	besideTwo  = 0.4
	besideMore = 0.75
	besideMost = 1.75
)

// plainQueue is the phase that podweir is compared with.
const plainQueue = "podweir-flat"

// ordinary judges podweir of the present build, and of that what it makes by itself.
func (b *barred) ordinary(c *spec.Cell) {
	if c.Phase.Kind != spec.Podweir || c.Phase.Keys["type"] != "" || c.Workload.Mix == nil {
		return
	}
	switch c.Phase.Keys["policy"] {
	case "strict":
		b.load(c)
	case "flat":
		b.caps(c, c.Workload.Direction)
	}
}

// load judges a cell, whatever its phase is.
func (b *barred) load(c *spec.Cell) {
	mix := c.Workload.Mix
	if c.Phase.Keys["policy"] != "elephants" { // which does not charge all
		b.caps(c, c.Workload.Direction)
	}
	if mix.BelowShare() {
		b.most(c, callLostKind, "call lost", "call_lost_percent", "%", callLostMost)
		b.turns(c)
	}
	frame := 1000 * spec.FrameSeconds(c.Rate)
	// In a flood every packet of which is a flow the call is as large as all others.
	if mix.BelowShare() || mix.Flood != "" {
		b.beyondPlain(c, flatLostKind, "call lost", "call_lost_percent", "%", lossResolved)
		b.beyondPlain(c, flatTimeKind, "call p90", "call_p90_ms", "ms", frame)
	}
	b.beyondPlain(c, flatDoneKind, "pages p95", "pages_p95_ms", "ms", frame)
	b.beyondPlain(c, flatDoneKind, "video segments, mean", "segment_mean_ms", "ms", frame)
	b.bulk(c)
}

// besideFlood: who slows down keeps its part of the cap. What it loses and how long it waits is the flood's doing.
func (b *barred) besideFlood(c *spec.Cell) {
	equal := 1 / float64(c.Workload.Mix.BulkFlows()+1)
	least, most := besideMore*equal, besideMost*equal
	if c.Workload.Mix.BulkFlows() == 1 {
		least, most = besideTwo, 1-besideTwo
	}
	b.least(c, besideKind, "the least flow's part beside a flood", "bulk_least_share", "", least)
	b.most(c, besideFloodKind, "the flood's part", "flood_share", "", most)
}

func (b *barred) bulk(c *spec.Cell) {
	mix, d := c.Workload.Mix, c.Workload.Direction
	if mix.Flood != "" {
		b.besideFlood(c)
		return
	}
	b.least(c, jainKind, "fairness of the bulk flows", "bulk_fairness_share", "", leastFair(c))
	if mix.Marked() {
		b.most(c, ecnAgainKind, "segments sent again by ECN flows", "late_retransmits_count", "", 0)
		// Where nothing is lost no mark is owed.
		if marked := values(b.r, c, "bulk_marked_count"); len(marked) > 0 {
			dropped := slices.Max(append(values(b.r, c, "bulk_dropped_count"), 0))
			b.add(slices.Min(marked) > 0 || dropped == 0, c, "packets marked", fmt.Sprintf("%.0f", slices.Min(marked)), "more than 0 where one is lost").
				of(markedKind, slices.Min(marked))
		}
	} else {
		b.most(c, againKind, "segments sent again", "late_retransmits_percent", "%", mostAgain(c))
	}
	if n := mix.BulkFlows(); len(mix.Bulk) == 1 && (n == 1 || n == 8) {
		b.least(c, loadUseKind, "use of the cap", d+"_used_share", "", leastUse)
	}
	if c.Rate >= ownWaitFrom && !mix.Tunnel {
		b.most(c, ownWaitKind, "bulk's own wait, median", "bulk_round_trip_p50_ms", "ms", mostWait(c))
	}
}

// turns: one packet of each active flow, three times, and what the machine adds.
func (b *barred) turns(c *spec.Cell) {
	over := b.differences(c, "call_p99_ms", c, "call_bystander_p99_ms")
	b.judge(c, callTimeKind, "call p99, beyond the bystander's", over, "ms", callTurns*1000*c.Workload.Mix.TurnSeconds(c.Rate))
}

// beyondPlain: not worse than a plain queue in the same round.
func (b *barred) beyondPlain(c *spec.Cell, k Kind, what, metric, unit string, limit float64) {
	if other := *c; c.Phase.Name != plainQueue {
		other.Phase = spec.Phase{Name: plainQueue}
		b.judge(c, k, what+", beyond "+plainQueue+"'s", b.differences(c, metric, &other, metric), unit, limit)
	}
}

// differences are those of the rounds that have both.
func (b *barred) differences(c *spec.Cell, metric string, other *spec.Cell, otherMetric string) []float64 {
	theirs := b.r.Values(other.ID(), otherMetric)
	var out []float64
	for round, v := range b.r.Values(c.ID(), metric) {
		if o, ok := theirs[round]; ok {
			out = append(out, v-o)
		}
	}
	return out
}

func (b *barred) most(c *spec.Cell, k Kind, what, metric, unit string, limit float64) {
	b.judge(c, k, what, values(b.r, c, metric), unit, limit)
}

// least is most, the other way round.
func (b *barred) least(c *spec.Cell, k Kind, what, metric, unit string, limit float64) {
	if s := stats.Summarise(values(b.r, c, metric)); s.N > 0 {
		b.interval(c, k, what, s, unit, fmt.Sprintf("at least %.4g", limit), func(v float64) float64 { return limit - v })
	}
}

// judge: at most limit, by the 95 % interval of the mean. What is on either side of it
// is not decided, nor is what one sample says.
func (b *barred) judge(c *spec.Cell, k Kind, what string, samples []float64, unit string, limit float64) {
	if s := stats.Summarise(samples); s.N > 0 {
		b.interval(c, k, what, s, unit, withUnit(fmt.Sprintf("at most %.4g", limit), unit), func(v float64) float64 { return v - limit })
	}
}

// interval adds a bar. over returns by how much a value misses what is wanted; 0 or less
// if it does not.
func (b *barred) interval(c *spec.Cell, k Kind, what string, s stats.Summary, unit, want string, over func(float64) float64) {
	const rounding = 1e-9
	misses := func(v float64) bool { return over(v) > rounding }
	measured := withUnit(fmt.Sprintf("%.4g", s.Mean), unit)
	if s.N > 1 {
		measured += fmt.Sprintf(" (95 %%: %.4g to %.4g)", s.ConfidenceLow, s.ConfidenceHigh)
	}
	low, high := misses(s.ConfidenceLow), misses(s.ConfidenceHigh)
	bar := b.add(!low || !high, c, what, measured, want)
	bar.Single = s.N == 1
	bar.Undecided, bar.Beyond = bar.Single || low != high, bar.Single && misses(s.Mean)
	bar.of(k, s.Mean)
}

func withUnit(number, unit string) string {
	if unit == "" {
		return number
	}
	return number + " " + unit
}
