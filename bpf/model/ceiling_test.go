// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
)

// A higher rate is in force at once, whatever the ceiling counted at the lower one.
func TestCeilingOfAnotherRate(t *testing.T) {
	const now = uint64(1000e9)
	d := &Direction{Config: shaping.Datapath{
		CeilingRate:  shaping.FixedRate{Mult: 64 * 8e9 / 10e3}, // 10 kbit/s
		CeilingBurst: 64 * 1e9,
	}}
	p := &Packet{Data: make([]byte, 1000)}
	dropped := 0
	for range 5 {
		if d.Ceiling(p, Clock{CoarseNS: now, ExactNS: now}).Disposition.Dropped() {
			dropped++
		}
	}
	if dropped != 3 {
		t.Errorf("%d of 5 packets of 0.8 s were dropped with room for 1 s, want 3", dropped)
	}
	d.Config.CeilingRate.Mult /= 100
	d.Config.CeilingBurst /= 10
	if out := d.Ceiling(p, Clock{CoarseNS: now, ExactNS: now}); out.Disposition.Dropped() {
		t.Error("the first packet at a higher rate was dropped")
	}
}
