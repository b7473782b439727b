// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import "math"

// The sketch as in bpf/lib/abi.h.
const (
	// EstimateOne is the estimate of a flow that has all of the cap, or in the
	// policy elephants as much as the threshold (PW_EST_ONE).
	EstimateOne = 1 << 24
	// TickShift: one tick is 2^20 ns.
	TickShift = 20
	// TickSkew is by how many ticks the clocks of two CPUs may differ.
	TickSkew = 4096

	decayShift = 20
	decayA     = 726_817
	decayB     = 244_180
	decayC     = 41_650
)

// Tick is the tick of a time of CLOCK_MONOTONIC in ns; ticks wrap after 52
// days.
func Tick(nowNS uint64) uint32 { return uint32(nowNS >> TickShift) }

// Decay is what is left after since ticks of an estimate that halves in 2^shift
// ticks. Up to [TickSkew] ticks of the future are the present; after 32
// half-lives nothing is left.
func Decay(est, since, shift uint32) uint32 {
	if since > math.MaxUint32-TickSkew {
		return est
	}
	halvings, rest := since>>shift, uint64(since)&(1<<shift-1)
	if halvings >= 32 {
		return 0
	}
	lost := decayB - decayC*rest>>shift
	lost = decayA - lost*rest>>shift
	lost = lost * rest >> shift
	return uint32(uint64(est>>halvings) * (1<<decayShift - lost) >> decayShift)
}
