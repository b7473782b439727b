// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"math"
	"net/netip"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Class is the class of a packet.
type Class uint8

// The classes.
const (
	ClassLight Class = iota + 1
	ClassHeavy
	ClassExempt
)

// Direction is one direction of one pod: a configuration and the state that
// packets leave behind.
type Direction struct {
	Config  shaping.Datapath
	Keys    Keys
	Subnets []netip.Prefix

	Light, Established, Total, Control Meter
	CeilingMeter                       Meter
	// CeilingFor is the rate that CeilingMeter is of.
	CeilingFor uint64
	Group      Group
	Fair       Fair
	Sketch     Sketch
	Recent     Recent
	Newcomers  Newcomers
	Flows      FlowTable
	Heavy      HeavyTable
	Active     Active
	Waits      Waits
	// LightBytes is what was counted as light before the packet at hand.
	LightBytes uint64
}

// work is one packet on its way.
type work struct {
	parsed Parsed
	clock  Clock
	nowNS  uint64
	bytes  uint32
	// backlog is how much the queue holds.
	backlog uint32
	// sender is what the socket says of a TCP sender on this node, nil for others.
	sender *Sender
	// level is the total meter's when it was read, before is when the
	// packet came.
	level, before uint64
	// id is the hash of the flow.
	id FlowID
	// fair is what is fair.
	fair Fair
	// listed are the bytes of the flow in the table of heavy flows, before this packet.
	listed uint64
	// est is the flow's estimate, bigEst from which on a flow is held. Under elephants
	// est is by the threshold, until the packet is known to be heavy.
	est, bigEst uint32
}

// shortPart is the part of the light-only meter's tolerance for which a short queue takes to send.
const shortPart = 64

// smallBytes is up to how many bytes a packet of a new flow counts as small.
const smallBytes = 256

// lightLimit is the level of the light-only meter up to which a flow that is
// taken for so much may use it, where flows are held from an estimate on: the
// fuller the meter, the smaller a flow has to be.
func lightLimit(tolerance uint64, claim, bigEst uint32) uint64 {
	eighth := tolerance / 8
	switch {
	case claim >= bigEst/2:
		return tolerance - 4*eighth
	case claim >= bigEst/8:
		return tolerance - 2*eighth
	case claim >= bigEst/32:
		return tolerance - eighth
	default:
		return tolerance
	}
}

// newClaim is what a new flow is taken for: its packets count by their size.
func (w *work) newClaim() uint32 {
	if w.bytes <= smallBytes {
		return 0
	}
	return max(w.est, w.bigEst/32)
}

func (d *Direction) lightAsk(w *work, claim uint32) ask {
	tolerance := uint64(d.Config.LightTolerance)
	return ask{
		rate: d.Config.LightRate, bytes: w.bytes, full: 2 * tolerance,
		limit: lightLimit(tolerance, claim, w.bigEst),
	}
}

// takeLight asks the light-only meter, which refuses nothing while the queue is short.
func (d *Direction) takeLight(w *work, claim uint32) bool {
	_, ok := d.Light.take(&w.nowNS, w.clock, d.lightAsk(w, claim))
	return ok || d.isShort(w)
}

// isShort says that what waits takes no longer than a part of the tolerance of the
// light-only meter.
func (d *Direction) isShort(w *work) bool {
	most := uint64(d.Config.TotalBurst) + uint64(d.Config.LightTolerance)/shortPart
	return d.Total.Level(w.nowNS<<meterShift) <= most
}

// takeReserve is called for established flows where the light-only meter is
// full.
func (d *Direction) takeReserve(w *work) bool {
	a := d.lightAsk(w, w.est)
	a.twice, a.limit, a.full = true, a.limit/4, uint64(d.Config.LightTolerance)/4
	if _, ok := d.Established.take(&w.nowNS, w.clock, a); !ok {
		return false
	}
	d.Light.TAT += Cost(a.rate, a.bytes)
	return true
}

// ARP and neighbour discovery go first up to this part of the cap, so many small
// packets of them at once.
const (
	controlPart    = 100
	controlPackets = 8
)

func (d *Direction) takeControl(w *work) bool {
	limit := controlPart * Cost(d.Config.TotalRate, controlPackets*smallBytes)
	now := w.nowNS << meterShift
	level := d.Control.Level(now)
	if w.bytes > smallBytes || level >= limit {
		return false
	}
	d.Control.TAT = now + level + controlPart*Cost(d.Config.TotalRate, w.bytes)
	return true
}

func (d *Direction) exempt(p *Parsed) bool {
	if p.Family == 0 || d.Config.SubnetsMode == shaping.SubnetsNone {
		return false
	}
	remote := netip.AddrFrom16(p.Flow.Dst)
	if d.Config.Direction == terms.Ingress {
		remote = netip.AddrFrom16(p.Flow.Src)
	}
	found := false
	for _, s := range d.Subnets {
		found = found || mapped(s).Contains(remote)
	}
	return found == (d.Config.SubnetsMode == shaping.SubnetsUnshaped)
}

// mapped is an IPv4 prefix as a prefix of IPv4-mapped addresses.
func mapped(p netip.Prefix) netip.Prefix {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return netip.PrefixFrom(netip.AddrFrom16(p.Addr().As16()), bits)
}

func (d *Direction) classify(w *work) Class {
	flow := &w.parsed.Flow
	if d.exempt(&w.parsed) {
		return ClassExempt
	}
	if w.parsed.Control && d.takeControl(w) {
		return ClassLight
	}
	if d.Config.Policy == terms.PolicyFlat {
		return ClassHeavy
	}
	id, tick := d.Keys.Hash(flow), Tick(w.nowNS)
	w.id = id
	if !d.isHeavy(w, id, tick) {
		return ClassLight
	}
	d.Active.note(id, w.nowNS)
	w.listed = d.Heavy.record(id, flow, w.bytes, w.nowNS)
	return ClassHeavy
}

// isHeavy counts the packet and decides. A heavy flow is held for the longest
// time from its last packet on at which it had its share. Any other that
// finds no room among the light ones waits its turn: as long as what is queued
// takes to send, and long enough to become established meanwhile. TCP that had its
// share is held on down to a quarter of it. A heavy packet that the sketch does not count is one of newcomers.
func (d *Direction) isHeavy(w *work, id FlowID, tick uint32) bool {
	c := &d.Config
	strict := c.Policy == terms.PolicyStrict
	w.before = d.Total.Level(w.nowNS << meterShift)
	d.Fair.look(c, w.before, tick)
	w.fair = d.Fair
	estimate, counts := d.Sketch.Update, !strict || d.Flows.counts(id)
	if !counts {
		estimate = d.Sketch.With
	}
	cost := Cost(c.SketchRate, w.bytes)
	w.est = estimate(id, tick, cost, c.HalfLifeShift)
	w.bigEst = BigEstimate(d.fairTo(w), c.LightLeast, c.LightMost)
	big := w.est >= w.bigEst
	unit, longest := flowUnit(tick), flowHold(c.HoldTicks)
	hold := longest
	if !big {
		hold = min(flowOld+flowHold(uint32(min(w.before>>(meterShift+TickShift), math.MaxUint32))), longest)
	}
	k := d.Flows.find(id, unit, hold, longest)
	if strict && k.held && w.slowed(ahead(k.at, unit), hold) {
		big, hold = true, longest
	}
	light, at := uint64(w.est) < d.lightMost(w, &k) && !k.held, k.at
	if light && !strict {
		return false
	}
	if light {
		light, at = d.room(w, &k), unit
	}
	if !light && (big || !k.held) {
		at = unit + hold
	}
	d.Flows.keep(id, k, at, big)
	if !light && !counts {
		w.est = d.Newcomers.update(tick, cost, c.HalfLifeShift)
	}
	if !light && strict && w.est >= d.Fair.Share {
		d.Fair.Wanted = true
	}
	return !light
}

// lightMost is up to which estimate a flow is light. That of a new flow is only a part of
// its rate, so where light packets have had much of the cap just now it is light up to half.
func (d *Direction) lightMost(w *work, k *known) uint64 {
	most := uint64(w.bigEst) + uint64(w.bigEst/4)
	if k.age != flowOld && d.Waits.Factor > waitMuchLight && int64(w.nowNS-d.Waits.SinceNS) < waitMuchLightNS {
		most -= most / 2
	}
	return most + uint64(d.Config.FrameEstimate)
}

// fairTo is what is fair to a flow: the share, and no less than what it would have if
// it and all heavy ones had the same.
func (d *Direction) fairTo(w *work) uint32 {
	if w.est < w.fair.Share {
		return w.fair.Share
	}
	return max(w.fair.Share, d.Active.equal())
}

// slowed says whether a flow is TCP that was held for its share, not for a turn, and
// has a quarter of it or more: it has slowed down, and comes back.
func (w *work) slowed(left int32, turn uint32) bool {
	return w.parsed.Flow.Protocol == protoTCP && w.est >= w.bigEst/4 && left > int32(turn)
}

// room says whether there is room among the light flows.
func (d *Direction) room(w *work, k *known) bool {
	if k.age == flowOld {
		return d.takeLight(w, w.est) || d.takeReserve(w)
	}
	return d.takeLight(w, w.newClaim())
}
