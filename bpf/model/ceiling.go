// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import "github.com/podweir/podweir/plugin/shaping"

// Group is what the pods of a group have together in a direction.
type Group struct {
	Meter Meter
	// For is the rate that Meter is of.
	For uint64
	// Packets and Bytes were dropped, in wire bytes.
	Packets, Bytes uint64
}

// Ceiling is what pw_ceiling does to a packet that came through a queue.
func (d *Direction) Ceiling(p *Packet, clock Clock) Outcome {
	w, out := d.begin(p, clock, computedAsQueued)
	out.Disposition = Uncounted
	if d.exempt(&w.parsed) {
		return out
	}
	burst, rate := uint64(d.Config.CeilingBurst), d.Config.CeilingRate
	d.CeilingMeter.begin(&d.CeilingFor, rate, clock)
	if _, ok := d.CeilingMeter.take(&w.nowNS, w.clock, ask{
		rate: rate, bytes: w.bytes, limit: burst, full: burst,
	}); !ok {
		out.Disposition = DropCeiling
	} else if d.Config.Group != 0 && !d.Group.admits(&d.Config, w.bytes, clock) {
		out.Disposition = DropGroup
	}
	return out
}

// admits charges a packet, or counts it as dropped.
func (g *Group) admits(c *shaping.Datapath, bytes uint32, clock Clock) bool {
	g.Meter.begin(&g.For, c.GroupRate, clock)
	now, burst := clock.ExactNS, uint64(c.GroupBurst)
	_, ok := g.Meter.take(&now, clock, ask{rate: c.GroupRate, bytes: bytes, limit: burst, full: burst})
	if !ok {
		g.Packets++
		g.Bytes += uint64(bytes)
	}
	return ok
}

// begin starts the meter anew if it was of another rate.
func (m *Meter) begin(whose *uint64, rate shaping.FixedRate, clock Clock) {
	if is := rate.Mult ^ uint64(rate.Shift)<<48; is != *whose {
		*whose, m.TAT = is, clock.ExactNS<<meterShift
	}
}
