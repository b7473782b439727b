// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// The fair share as in bpf/lib/fair.h.
const (
	fairMost       = EstimateOne
	fairLeast      = EstimateOne / 256
	fairGainShift  = 7
	fairErrorShift = 10
	fairShrink     = 2
	// fairFrames is what an offloaded packet adds to an estimate.
	fairFrames = 4
	// A flow that had less than this part of the share before a packet does not lose it.
	fairSilentPart = 8
	fairMostTicks  = 16
	fairPause      = 512
	// TCP bulk that loses 1/150 of the cap lets the wait as it is.
	fairLostShift = 1
	fairFade      = 1 << (TickShift + meterShift - fairLostShift) / 150
	// fairBulk is how much a flow has sent, in time at the cap, when it is bulk.
	fairBulk = 1 << (26 + meterShift)
	// fairBegins is for how long of its share TCP may have twice that, where bulk makes
	// the queue longer.
	fairBegins = 1 << (31 + meterShift)
	// Out of a pod it may lose 8 times as much: its kernel is told.
	fairToldShift = 3
	// For so long after a loss, each packet of TCP bulk that finds the queue empty makes
	// the wait longer by half of its time.
	fairCutTicks    = 2048
	fairUnusedShift = 1
	// A flood loses packets, or TCP of this node is heavy, for so many units after it was
	// noted. They are odd, of 2^6 ticks.
	fairSeenShift = 6
	fairSeen      = 4
)

// Fair is the fair share of a direction: an estimate, as of a tick. It is moved
// by how full the queue is.
type Fair struct {
	Share, Tick uint32
	// Wanted says that since Tick a heavy flow has had the share.
	Wanted bool
	// Extra is how much longer heavy packets shall wait because of losses, in 1/64 ns.
	Extra uint64
	// Cut is the tick in which TCP bulk last lost a packet for its share, or was marked.
	Cut uint32
	// Flooded says that a flood loses packets, Beside that it does next to heavy TCP of this
	// node, both as of Tick.
	Flooded, Beside bool
	// Flood is the unit in which a flood last lost a packet for its share, Local that in which
	// TCP of this node was last heavy; 0 is never.
	Flood, Local uint16
}

// Seen is Cut, Flood and Local as in the state of the programs.
func (f *Fair) Seen() uint64 { return uint64(f.Local)<<48 | uint64(f.Flood)<<32 | uint64(f.Cut) }

// unitOf is the unit of a tick.
func unitOf(tick uint32) uint16 { return uint16(tick>>fairSeenShift | 1) }

// seen says that what was noted in a unit was just before a tick.
func seen(at uint16, tick uint32) bool { return at != 0 && unitOf(tick)-at < fairSeen }

// The bits of Wanted, Flooded and Beside in a word of the state.
const (
	fairWanted  = 1 << 31
	fairFlooded = 1 << 30
	fairBeside  = 1 << 29
)

// Word is the share as in the state of the programs.
func (f *Fair) Word() uint64 {
	word := uint64(f.Tick)<<32 | uint64(f.Share)
	if f.Wanted {
		word |= fairWanted
	}
	if f.Flooded {
		word |= fairFlooded
	}
	if f.Beside {
		word |= fairBeside
	}
	return word
}

// look brings it up to a tick, at which the total meter has a level.
func (f *Fair) look(c *shaping.Datapath, level uint64, tick uint32) {
	ticks := tick - f.Tick
	if ticks+TickSkew <= TickSkew {
		return // to a CPU whose tick is older no time has passed
	}
	f.Flooded = seen(f.Flood, tick)
	f.Beside = f.Flooded && seen(f.Local, tick)
	f.Tick, f.Share = tick, f.moved(c, level, ticks)
	f.Wanted = false
	f.Extra -= min(f.Extra, uint64(ticks)*fairFade)
}

// wait is how long heavy packets shall wait, in 1/64 ns. Beside a flood TCP of this
// node has no more in the queue than its packets, and the queue is as long as that.
func (f *Fair) wait(c *shaping.Datapath) uint64 {
	each := uint64(c.FairEach) << 16 / uint64(f.Share>>8|1)
	if f.Beside {
		return min(each, uint64(c.FairMost))
	}
	return min(max(each, uint64(c.FairLeast))+f.Extra, uint64(c.FairMost))
}

// moved is the share so many ticks later, with a level of the total meter.
func (f *Fair) moved(c *shaping.Datapath, level uint64, ticks uint32) uint32 {
	if ticks > fairPause {
		return fairMost
	}
	wait := f.wait(c)
	fair, aim, part := uint64(f.Share), uint64(c.TotalBurst)+wait, fairRange(wait)|1
	step := fair * uint64(min(ticks, fairMostTicks))
	switch {
	case level <= aim && f.Wanted:
		fair += step * (min(aim-level, part) << fairErrorShift / part) >> (fairGainShift + fairErrorShift)
	case level > aim:
		beyond := min(level-aim, fairShrink*part) << fairErrorShift
		fair -= step * (beyond / part) >> (fairGainShift + fairErrorShift)
	}
	return uint32(max(min(fair, fairMost), fairLeast))
}

// fairRange is the part of what is aimed at over which the chance of a loss rises.
func fairRange(wait uint64) uint64 { return wait / 4 }

// BigEstimate is from which estimate on a flow is held, where so much is fair; it
// becomes heavy a quarter above that.
func BigEstimate(fair, least, most uint32) uint32 {
	return max(min(fair, most), least)
}

// excess is what becomes of a heavy packet of a flow that has more than its
// share.
type excess uint8

const (
	excessNone excess = iota
	excessDrop
	excessMark
)

// draw says it for an estimate, where so much waits. random is what the dice
// show.
func draw(c *shaping.Datapath, w *work, random uint32) excess {
	fair, wait := w.fairShare(c), w.fair.wait(c)
	first := uint64(c.TotalBurst) + wait - fairRange(wait)
	without := uint64(w.est) - min(Cost(c.FairRate, w.bytes), uint64(w.est))
	switch {
	case uint64(w.est) <= fair || without <= fair/fairSilentPart || w.before < first:
		return excessNone
	case uint64(random)*uint64(w.est)>>32 <= fair:
		return excessNone
	case w.before-first <= wait>>18*uint64(random&0xffff):
		return excessNone
	case w.parsed.ecnCapable() && uint64(w.est) < 2*fair+fairFrames*uint64(c.FairFrameEstimate):
		return excessMark
	default:
		return excessDrop
	}
}

// excess is what becomes of a heavy packet of a policy that has bands. One of TCP bulk that is lost
// makes heavy packets wait longer from then on, and so does one that finds the queue
// empty soon after a loss.
func (d *Direction) excess(w *work, random uint32) excess {
	c := &d.Config
	if c.Policy == terms.PolicyElephants {
		w.est = d.Recent.Update(w.id, Tick(w.nowNS), Cost(c.FairRate, w.bytes), c.FairHalfLifeShift)
		d.Fair.Wanted = d.Fair.Wanted || w.est >= w.fair.Share
		equal := d.Active.equal()
		if equal += equal / 4; w.est <= equal {
			w.fair.Share = max(w.fair.Share, equal)
		}
	}
	e := draw(c, w, random)
	if e == excessDrop && w.sender.Idle() && isTurn(c, w) {
		e = excessNone
	}
	f, tick, cost := &d.Fair, Tick(w.nowNS), Cost(c.TotalRate, w.bytes)
	most := uint64(w.fair.Share) + uint64(w.fair.Share)/4 + fairFrames*uint64(c.FairFrameEstimate)
	if e != excessNone && w.parsed.Flow.Protocol != protoTCP && uint64(w.est) > most {
		f.Flood = unitOf(tick)
	}
	if w.sender != nil {
		f.Local = unitOf(tick)
	}
	if !w.isBulk(c) {
		return e
	}
	switch {
	case e == excessDrop:
		if c.Direction == terms.Egress {
			cost >>= fairToldShift
		}
		f.waitLonger(c, cost>>fairLostShift)
	case e == excessNone && w.before <= uint64(c.TotalBurst)/4 && tick-f.Cut < fairCutTicks:
		f.waitLonger(c, cost>>fairUnusedShift)
	}
	if e != excessNone {
		f.Cut = tick
	}
	return e
}

// isTurn says whether the packet is one that an idle sender keeps: it takes no more than its
// flow's share is of the wait, or than half of the room that is left.
func isTurn(c *shaping.Datapath, w *work) bool {
	part := (w.fair.wait(c) >> 12) * w.fairShare(c) / (EstimateOne >> 12)
	most := uint64(c.TotalBurst) + uint64(c.FairMost)
	return Cost(c.TotalRate, w.bytes) < max(part, (most-min(most, w.before))/2)
}

// sent is what the packet's flow has sent, counted in KiB, in 2^10/64 ns at the cap; 0
// for all but TCP.
func (w *work) sent(c *shaping.Datapath) uint64 {
	if w.parsed.Flow.Protocol != protoTCP {
		return 0
	}
	return Cost(c.TotalRate, uint32(min(w.listed>>10, MaxBytes)))
}

// isBulk says whether the packet is of TCP that has sent much.
func (w *work) isBulk(c *shaping.Datapath) bool { return w.sent(c) > fairBulk>>10 }

// fairShare is the share of the packet's flow: twice that of others for TCP that has sent
// little, where bulk makes the queue longer, and half of it more for TCP beside a flood.
func (w *work) fairShare(c *shaping.Datapath) uint64 {
	fair := uint64(w.fair.Share)
	if sent := w.sent(c); sent > 0 && sent < fair*(fairBegins>>10)/EstimateOne && w.fair.Extra > 0 {
		fair *= 2
	}
	if w.parsed.Flow.Protocol == protoTCP && w.fair.Flooded {
		fair += uint64(w.fair.Share) / 2
	}
	return fair
}

func (f *Fair) waitLonger(c *shaping.Datapath, by uint64) {
	f.Extra = min(f.Extra+by, uint64(c.FairMost))
}
