// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"math"

	"github.com/podweir/podweir/plugin/shaping"
)

const (
	// meterShift: meter time is in 1/64 ns.
	meterShift = 6
	// MaxBytes is up to how many bytes a packet is charged to the byte
	// (PW_MAX_BYTES), and beyond that in units of 2^unitShift.
	MaxBytes  = 1<<20 - 1
	unitShift = 13
)

// Clock is the time at which a packet comes: CLOCK_MONOTONIC in ns, and the
// same as of the last timer interrupt, never above it.
type Clock struct {
	ExactNS, CoarseNS uint64
}

// Cost is what bytes cost at a rate, rounded up.
func Cost(r shaping.FixedRate, bytes uint32) uint64 {
	shift, unit := r.Shift&63, 0
	if bytes > MaxBytes {
		unit = unitShift
	}
	units := (uint64(bytes) + (1<<unit - 1)) >> unit
	return (units*r.Mult + (1<<shift - 1)) >> shift << unit
}

// Meter is a virtual clock, GCRA: the theoretical arrival time in 1/64 ns,
// wrapping.
type Meter struct {
	TAT uint64
}

// Level is how far the meter is ahead of now, both in 1/64 ns.
func (m *Meter) Level(now uint64) uint64 {
	if level := int64(m.TAT - now); level > 0 {
		return uint64(level)
	}
	return 0
}

// ask is what a packet asks of a meter.
type ask struct {
	rate        shaping.FixedRate
	bytes       uint32
	limit, full uint64
	// twice says that each byte counts for two.
	twice bool
}

func (a *ask) cost() uint64 {
	if a.twice {
		return 2 * Cost(a.rate, a.bytes)
	}
	return Cost(a.rate, a.bytes)
}

// take admits and charges a packet at or below the limit, or does neither, and
// returns the level that it found. It refuses by the exact time only, which
// is then the packet's time.
func (m *Meter) take(nowNS *uint64, clock Clock, a ask) (level uint64, admitted bool) {
	for look := 0; ; look++ {
		if look > 0 {
			*nowNS = clock.ExactNS
		}
		now := *nowNS << meterShift
		level = m.Level(now)
		if level <= a.limit {
			m.TAT = now + level + a.cost()
			return level, true
		}
		if look > 0 {
			if level > a.full+Cost(a.rate, math.MaxUint32) {
				m.TAT = now + a.full
			}
			return level, false
		}
	}
}
