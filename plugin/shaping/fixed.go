// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"math"
	"math/bits"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/units"
)

// Numbers of bpf/lib/abi.h.
const (
	meterShift     = 6                      // PW_METER_SHIFT
	estimateOne    = 1 << 24                // PW_EST_ONE
	tick           = time.Duration(1) << 20 // PW_TICK_SHIFT
	perMilleScaled = uint64(units.Whole)
)

// multBits is the width of a normalised multiplier: the relative error is
// below 2^-42, and 2^43 * 2^20 + 2^shift fits 64 bits.
const multBits = 43

// sketchScale is 10^4 * 8 * 1000 * estimateOne * 10^9 * ln 2 / 2^30, rounded
// up: dividing by (bits per second * per mille * 10^4) gives the estimate that
// one byte adds with the longest half-life. A rate of r bytes per second settles
// at r * tau bytes under exponential decay, with tau = half-life / ln 2, and that
// is estimateOne when r is the share that is requested: the cap, or the threshold
// of elephants. 8e7 * 2^24 * 1e9 / 2^30 = 1.25e15.
const (
	sketchScale   = 866_433_975_699_932 // 1.25e15 * 0.693147180559945309...
	sketchDivisor = 10_000
)

// meterRate is the cost in 1/64 ns of a byte at a share of the cap.
func meterRate(rate units.BitRate, share units.PerMille) image.Rate {
	return fixed(perMilleScaled*8*uint64(time.Second)<<meterShift, uint64(rate)*uint64(share))
}

// The half-lives of the sketch in ticks, as powers of two: from 34 ms to 1.07 s.
const (
	shortestHalfLife = 5
	longestHalfLife  = 10
)

// sketchRate is what a byte adds to an estimate that halves in 2^halfLife ticks,
// where a share of the rate is estimateOne.
func sketchRate(rate units.BitRate, share units.PerMille, halfLife uint8) image.Rate {
	return fixed(sketchScale<<(longestHalfLife-halfLife), uint64(rate)*uint64(share)*sketchDivisor)
}

// meanLife is how long a byte is in the sketch on average, the half-life / ln 2.
func meanLife(halfLife uint8) time.Duration {
	return time.Duration(float64(tick<<halfLife) / math.Ln2)
}

// BitRate is the rate of a meter that charges by r, rounded to six digits, for
// people; 0 for no rate.
func BitRate(r image.Rate) units.BitRate {
	rate := bitsPerSecond(r)
	if rate == 0 {
		return 0
	}
	unit := math.Pow10(max(0, int(math.Log10(rate))-5))
	return units.BitRate(math.Round(rate/unit) * unit)
}

func bitsPerSecond(r image.Rate) float64 {
	if r.Mult == 0 {
		return 0
	}
	return 8 * 64e9 * math.Exp2(float64(r.Shift)) / float64(r.Mult)
}

// cost is that of so many bytes, rounded up; at most what an estimate holds.
func cost(r image.Rate, bytes units.Bytes) uint32 {
	return uint32(min((uint64(bytes)*r.Mult+1<<r.Shift-1)>>r.Shift, math.MaxUint32))
}

// fixed is num/den rounded up to multBits significant bits. num/den must be
// between 2^-21 and 2^42, which every rate and share in range is.
func fixed(num, den uint64) image.Rate {
	// num/den is at least 2^(log-1) and below 2^(log+1).
	shift := multBits - 1 - (bits.Len64(num) - bits.Len64(den))
	for ; ; shift-- {
		mult := mulShiftDivUp(num, uint(shift), den)
		if bits.Len64(mult) <= multBits {
			return image.Rate{Mult: mult, Shift: uint32(shift)}
		}
	}
}

// mulShiftDivUp is num * 2^shift / den, rounded up; the quotient must fit 64
// bits.
func mulShiftDivUp(num uint64, shift uint, den uint64) uint64 {
	hi, lo := num>>(64-shift), num<<shift
	q, r := bits.Div64(hi, lo, den)
	if r != 0 {
		q++
	}
	return q
}

// meterTime converts to 1/64 ns. Every time in a configuration is far below
// the 2^57 ns where this would overflow.
func meterTime(d time.Duration) uint64 {
	return uint64(max(d, 0)) << meterShift
}
