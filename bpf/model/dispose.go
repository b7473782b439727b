// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"fmt"

	"github.com/podweir/podweir/plugin/terms"
)

// Disposition is what became of a packet; the values are those of enum
// pw_disposition.
type Disposition uint8

// The dispositions that a packet of a configured program can have.
const (
	Light Disposition = iota
	Conforming
	Paced
	Marked
	Exempt
	DropHorizon
	DropEarly
	DropPoliced
	FailOpenConfig
	FailOpenStamp
	DropCeiling
	WouldWait
	WouldDrop
	// Uncounted is a packet that passed and was counted before.
	Uncounted
	// DropGroup is counted by its group.
	DropGroup
)

var dispositionNames = [...]string{
	"light", "conforming", "paced", "marked", "exempt",
	"drop-horizon", "drop-early", "drop-policed", "failopen-config", "failopen-stamp",
	"drop-ceiling", "would-wait", "would-drop", "uncounted", "drop-group",
}

func (d Disposition) String() string {
	if int(d) < len(dispositionNames) {
		return dispositionNames[d]
	}
	return fmt.Sprintf("invalid(%d)", d)
}

// Dropped says whether the packet was dropped.
func (d Disposition) Dropped() bool {
	return d >= DropHorizon && d <= DropPoliced || d == DropCeiling || d == DropGroup
}

// Outcome is what a program does to a packet.
type Outcome struct {
	Disposition Disposition
	// Bytes are the wire bytes that were counted.
	Bytes uint32
	// Priority and Stamp are what skb->priority and skb->tstamp are afterwards.
	Priority uint32
	Stamp    uint64
	// ClassID is the answered minor number of a class, for [Direction.Class].
	ClassID uint16
}

// sizing is how a program knows the wire bytes of a packet.
type sizing func(*Packet, *Parsed) uint32

func counted(p *Packet, _ *Parsed) uint32 { return WireCounted(p) }

func computed(p *Packet, parsed *Parsed) uint32 { return WireComputed(p, parsed, true) }

// computedAsQueued is never more than the queue was charged, on any kernel.
func computedAsQueued(p *Packet, parsed *Parsed) uint32 { return WireComputed(p, parsed, false) }

func (d *Direction) begin(p *Packet, clock Clock, bytes sizing) (*work, Outcome) {
	w := &work{parsed: Parse(p, d.Config.L3Only), clock: clock, nowNS: clock.CoarseNS, backlog: p.Backlog, sender: p.Sender}
	w.bytes = bytes(p, &w.parsed)
	return w, Outcome{Bytes: w.bytes, Priority: p.Priority, Stamp: p.Stamp}
}

func (d *Direction) heavyLimit() uint64 {
	return uint64(d.Config.TotalBurst) + uint64(d.Config.TotalHorizon)
}

func (d *Direction) full() uint64 { return d.heavyLimit() + uint64(d.Config.LightTolerance) }

func (d *Direction) takeTotalBelow(w *work, limit uint64) (ok bool) {
	w.level, ok = d.Total.take(&w.nowNS, w.clock, ask{
		rate: d.Config.TotalRate, bytes: w.bytes, limit: limit, full: d.full(),
	})
	return ok
}

// takeTotal charges a light packet. Under elephants that is free.
func (d *Direction) takeTotal(w *work) {
	if d.Config.Policy != terms.PolicyElephants {
		d.takeTotalBelow(w, d.full())
	}
}

// Class is pw_class: the classifier of our own qdisc. random is what the dice
// show, here and below.
func (d *Direction) Class(p *Packet, clock Clock, random uint32) Outcome {
	out := d.Band(p, clock, random)
	switch out.Disposition {
	case Light:
		out.ClassID = d.Config.LightClass
	case Exempt:
		out.ClassID = d.Config.ExemptClass
	case DropEarly, DropHorizon:
		out.ClassID = d.Config.DropClass
	default:
		out.ClassID = d.Config.HeavyClass
	}
	return out
}

// Band is pw_band: the priority that chooses the band.
func (d *Direction) Band(p *Packet, clock Clock, random uint32) Outcome {
	w, out := d.begin(p, clock, counted)
	switch d.classify(w) {
	case ClassLight:
		out.Disposition, out.Priority = Light, d.Config.LightPriority
		if d.Config.Policy == terms.PolicyStrict {
			d.takeTotal(w)
			d.noteWait(w, false)
		}
	case ClassHeavy:
		out.Disposition, out.Priority = d.wait(w, random), d.Config.HeavyPriority
	default:
		out.Disposition, out.Priority = Exempt, d.Config.ExemptPriority
	}
	return out
}

// bandLimit is the level up to which a heavy packet is admitted to the second band: a
// flow that has no more than its share loses no packet because others are large. Under
// strict it goes first.
func (d *Direction) bandLimit(w *work) uint64 {
	if d.Config.Policy == terms.PolicyStrict || w.est > w.fair.Share {
		return d.heavyLimit()
	}
	return d.full()
}

// wait is what becomes of a heavy packet in the second band.
func (d *Direction) wait(w *work, random uint32) Disposition {
	if d.Config.Policy == terms.PolicyFlat {
		return Paced
	}
	e := d.excess(w, random)
	switch {
	case e == excessDrop:
		return DropEarly
	case !d.takeTotalBelow(w, d.bandLimit(w)):
		return DropHorizon
	}
	d.noteWait(w, true)
	if e == excessMark {
		return Marked
	}
	return Paced
}

// coarseLagNS is how far the coarse clock may be behind: one timer interrupt
// at HZ = 100.
const coarseLagNS = 10_000_000

// chanceBits is the resolution of the chance of an early drop.
const chanceBits = 16

// Police is pw_police: pass, mark or drop now, or count what would be.
func (d *Direction) Police(p *Packet, clock Clock, random uint32) Outcome {
	w, out := d.begin(p, clock, computed)
	class, limit := d.classify(w), d.full()
	switch {
	case class == ClassExempt:
		out.Disposition = Exempt
		return out
	case class == ClassLight && d.Config.Policy == terms.PolicyElephants:
		return out
	case class == ClassHeavy:
		limit = d.policeLimit(w, random)
	}
	switch admitted := d.takeTotalBelow(w, limit); {
	case !admitted && d.Config.Observe:
		out.Disposition = WouldDrop
	case !admitted && w.level > d.heavyLimit():
		out.Disposition = DropPoliced
	case !admitted:
		out.Disposition = DropEarly
	case class == ClassLight:
		out.Disposition = Light
	case w.level <= uint64(d.Config.TotalBurst):
		out.Disposition = Conforming
	case d.Config.Observe:
		out.Disposition = WouldWait
	case !w.parsed.ecnCapable():
		out.Disposition = Conforming
	default:
		out.Disposition = Marked
	}
	return out
}

// policeLimit is the level up to which a heavy packet is admitted. For one
// that cannot be marked it is drawn between burst and burst + horizon.
func (d *Direction) policeLimit(w *work, random uint32) uint64 {
	burst, horizon := uint64(d.Config.TotalBurst), uint64(d.Config.TotalHorizon)
	level := d.Total.Level(w.nowNS << meterShift)
	if level > burst && level-burst < coarseLagNS<<meterShift {
		w.nowNS = w.clock.ExactNS
		level = d.Total.Level(w.nowNS << meterShift)
	}
	if level <= burst || w.parsed.ecnCapable() {
		return burst + horizon
	}
	chance := uint64(random >> (32 - chanceBits))
	return burst + horizon*chance>>chanceBits
}
