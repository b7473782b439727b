// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import "github.com/podweir/podweir/plugin/shaping"

const (
	// meterShift: meter time is in 1/64 ns.
	meterShift = 6
	// MaxBytes is what one packet is charged at most (PW_MAX_BYTES).
	MaxBytes = 1<<20 - 1
)

// Clock is the time at which a packet comes: CLOCK_MONOTONIC in ns, and the
// same as of the last timer interrupt, never above it.
type Clock struct {
	ExactNS, CoarseNS uint64
}

// Cost is what bytes cost at a rate, rounded up.
func Cost(r shaping.FixedRate, bytes uint32) uint64 {
	shift := r.Shift & 63
	return (uint64(min(bytes, MaxBytes))*r.Mult + (1<<shift - 1)) >> shift
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
			if level > a.full+Cost(a.rate, MaxBytes) {
				m.TAT = now + a.full
			}
			return level, false
		}
	}
}
