// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import "math"

// The sketch as in bpf/lib/abi.h.
const (
	// HeavyEstimate is the estimate at which a flow is heavy (PW_HEAVY_EST).
	HeavyEstimate = 1 << 24
	// TickShift: one tick is 2^20 ns.
	TickShift = 20
	// HalfLifeTicks is the half-life of an estimate, 1.07 s.
	HalfLifeTicks = 1 << halfLifeShift
	// TickSkew is by how many ticks the clocks of two CPUs may differ.
	TickSkew = 4096

	halfLifeShift = 10
	decayShift    = 20
	decayA        = 726_817
	decayB        = 244_180
	decayC        = 41_650
)

// Tick is the tick of a time of CLOCK_MONOTONIC in ns; ticks wrap after 52
// days.
func Tick(nowNS uint64) uint32 { return uint32(nowNS >> TickShift) }

// Decay is what is left after since ticks of an estimate. Up to [TickSkew]
// ticks of the future are the present; after 32 half-lives nothing is left.
func Decay(est, since uint32) uint32 {
	if since > math.MaxUint32-TickSkew {
		return est
	}
	halvings, rest := since>>halfLifeShift, uint64(since)%HalfLifeTicks
	if halvings >= 32 {
		return 0
	}
	lost := decayB - decayC*rest>>halfLifeShift
	lost = decayA - lost*rest>>halfLifeShift
	lost = lost * rest >> halfLifeShift
	return uint32(uint64(est>>halvings) * (1<<decayShift - lost) >> decayShift)
}
