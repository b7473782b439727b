// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

// Ceiling is what pw_ceiling does to a packet that left the pod.
func (d *Direction) Ceiling(p *Packet, clock Clock) Outcome {
	w, out := d.begin(p, clock, computedAsQueued)
	out.Disposition = Uncounted
	if d.exempt(&w.parsed) {
		return out
	}
	burst, rate := uint64(d.Config.CeilingBurst), d.Config.CeilingRate
	if is := rate.Mult ^ uint64(rate.Shift)<<48; is != d.CeilingFor {
		d.CeilingFor, d.CeilingMeter.TAT = is, clock.ExactNS<<meterShift
	}
	if _, ok := d.CeilingMeter.take(&w.nowNS, w.clock, ask{
		rate: rate, bytes: w.bytes, limit: burst, full: burst,
	}); !ok {
		out.Disposition = DropCeiling
	}
	return out
}
