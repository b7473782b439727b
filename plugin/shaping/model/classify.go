// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"net/netip"

	"github.com/podweir/podweir/plugin/shaping"
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
	Config shaping.Datapath
	Keys   Keys
	// Subnets are asked if WithSubnets is set, as in the *_x programs.
	Subnets     []netip.Prefix
	WithSubnets bool

	Light, Established, Total, Control Meter
	Sketch                             Sketch
	Flows                              FlowTable
	Heavy                              HeavyTable
}

// work is one packet on its way.
type work struct {
	parsed Parsed
	clock  Clock
	nowNS  uint64
	bytes  uint32
	level  uint64
}

// smallBytes is up to how many bytes a packet of a new flow counts as small.
const smallBytes = 256

// lightLimit is the level of the light-only meter up to which a flow with this
// estimate may use it: the fuller the meter, the smaller a flow has to be.
func lightLimit(tolerance uint64, est uint32) uint64 {
	eighth := tolerance / 8
	switch {
	case est >= HeavyEstimate/2:
		return tolerance - 4*eighth
	case est >= HeavyEstimate/8:
		return tolerance - 2*eighth
	case est >= HeavyEstimate/32:
		return tolerance - eighth
	default:
		return tolerance
	}
}

// newEstimate is what a new flow is taken for: its packets count by their size.
func newEstimate(est, bytes uint32) uint32 {
	if bytes <= smallBytes {
		return 0
	}
	return max(est, HeavyEstimate/32)
}

func (d *Direction) lightAsk(w *work, est uint32) ask {
	tolerance := uint64(d.Config.LightTolerance)
	return ask{rate: d.Config.LightRate, bytes: w.bytes, limit: lightLimit(tolerance, est), full: 2 * tolerance}
}

func (d *Direction) takeLight(w *work, est uint32) bool {
	_, ok := d.Light.take(&w.nowNS, w.clock, d.lightAsk(w, est))
	return ok
}

// takeReserve is asked for established flows where the light-only meter is
// full.
func (d *Direction) takeReserve(w *work, est uint32) bool {
	a := d.lightAsk(w, est)
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
	if !d.WithSubnets || p.Family == 0 || d.Config.SubnetsMode == shaping.SubnetsNone {
		return false
	}
	remote := netip.AddrFrom16(p.Flow.Dst)
	if d.Config.Direction == shaping.Ingress {
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
	if d.Config.Policy == shaping.PolicyFlat {
		return ClassHeavy
	}
	id, tick := d.Keys.Hash(flow), Tick(w.nowNS)
	if !d.isHeavy(w, id, tick) {
		return ClassLight
	}
	d.Heavy.record(id, flow, w.bytes, w.nowNS)
	return ClassHeavy
}

// isHeavy counts the packet and decides. A flow that is held is held anew only
// while it is not clearly light, so that a small flow that was moved once comes
// back although its packets follow each other faster than the hold.
func (d *Direction) isHeavy(w *work, id FlowID, tick uint32) bool {
	est := d.Sketch.Update(id, tick, Cost(d.Config.SketchRate, w.bytes))
	unit, hold := flowUnit(tick), flowHold(d.Config.HoldTicks)
	k := d.Flows.find(id, unit, hold)
	big := est >= HeavyEstimate/2
	light := est < HeavyEstimate && !k.held
	at := k.at
	if light {
		if d.Config.Policy != shaping.PolicyStrict {
			return false
		}
		if k.age == flowOld {
			light = d.takeLight(w, est) || d.takeReserve(w, est)
		} else {
			light = d.takeLight(w, newEstimate(est, w.bytes))
		}
		at = unit
	}
	if !light && (!k.held || big) {
		at = unit + hold
	}
	d.Flows.keep(id, k, at, big)
	return !light
}
