// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package units has the typed rates, sizes and shares that podweir computes
// with, and their checked conversions.
package units

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// BitRate is a rate in bits per second, the unit of the pod annotations.
type BitRate uint64

// ByteRate is a rate in bytes per second, the unit of the kernel's qdiscs.
type ByteRate uint64

// Bytes is a size in bytes.
type Bytes uint64

// PerMille is a share in thousandths.
type PerMille uint32

// The range of rates that podweir enforces (docs/reference/annotations.md).
const (
	MinRate BitRate = 1_000
	MaxRate BitRate = 400_000_000_000
)

// MaxBurst is the largest burst that can be requested: 10 ms at [MaxRate], and
// below the fillers that runtimes send when nobody requested one (2^32-1 bits
// from containerd, 34.4 Gbit from CRI-O).
const MaxBurst Bytes = 500_000_000

// Whole is a share of everything.
const Whole PerMille = 1000

// ByteRate converts to bytes per second, rounding down: a rate that is not a
// multiple of 8 bits loses less than one byte per second, and below 8 bit/s
// nothing is left (which is outside of [MinRate]).
func (r BitRate) ByteRate() ByteRate { return ByteRate(r / 8) }

// Share returns p of the rate, rounded down.
func (r BitRate) Share(p PerMille) BitRate {
	return BitRate(MulDiv(uint64(r), uint64(p), uint64(Whole), 0))
}

// Duration returns how long size takes at the rate, rounded up to a
// nanosecond. It is the longest [time.Duration] where the result exceeds that,
// and for a rate of 0.
func (r BitRate) Duration(size Bytes) time.Duration {
	return duration(uint64(size), uint64(r), 8*uint64(time.Second))
}

// Bytes returns what the rate carries in d, rounded down; 0 for a negative d.
// It saturates at 2^64-1.
func (r BitRate) Bytes(d time.Duration) Bytes {
	return Bytes(MulDiv(uint64(r), uint64(max(d, 0)), 8*uint64(time.Second), 0))
}

// BitRate converts to bits per second. It saturates at 2^64-1.
func (r ByteRate) BitRate() BitRate { return BitRate(MulDiv(uint64(r), 8, 1, 0)) }

// Duration returns how long size takes at the rate, rounded up to a
// nanosecond. It is the longest [time.Duration] where the result exceeds that,
// and for a rate of 0.
func (r ByteRate) Duration(size Bytes) time.Duration {
	return duration(uint64(size), uint64(r), uint64(time.Second))
}

// Bytes returns what the rate carries in d, rounded down; 0 for a negative d.
// It saturates at 2^64-1.
func (r ByteRate) Bytes(d time.Duration) Bytes {
	return Bytes(MulDiv(uint64(r), uint64(max(d, 0)), uint64(time.Second), 0))
}

// BytesFromBits converts a number of bits to bytes, rounding up so that a wish
// of a few bits is not a wish of nothing.
func BytesFromBits(n uint64) Bytes {
	size := n / 8
	if n%8 != 0 {
		size++
	}
	return Bytes(size)
}

func (r BitRate) String() string { return decimalString(uint64(r), "bit/s") }

func (r ByteRate) String() string { return decimalString(uint64(r), "B/s") }

func (b Bytes) String() string { return decimalString(uint64(b), "B") }

func (p PerMille) String() string {
	return trimmed(uint64(p), 1) + "%"
}

// decimalString is exact: it changes the unit, never the number.
func decimalString(v uint64, unit string) string {
	prefixes := [...]string{"", "k", "M", "G", "T", "P", "E"}
	exp := 0
	for x := v; x >= 1000; x /= 1000 {
		exp++
	}
	return trimmed(v, 3*exp) + " " + prefixes[exp] + unit
}

// trimmed is v / 10^places in decimal without trailing zeros.
func trimmed(v uint64, places int) string {
	s := strconv.FormatUint(v, 10)
	if len(s) <= places {
		s = strings.Repeat("0", places-len(s)+1) + s
	}
	whole, fraction := s[:len(s)-places], strings.TrimRight(s[len(s)-places:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

func duration(size, rate, unit uint64) time.Duration {
	if rate == 0 {
		return math.MaxInt64
	}
	return time.Duration(min(MulDiv(size, unit, rate, rate-1), math.MaxInt64))
}

// MulDiv is (a*b + add) / div without overflow, saturated at 2^64-1.
func MulDiv(a, b, div, add uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, add, 0)
	hi += carry
	if hi >= div {
		return saturated
	}
	q, _ := bits.Div64(hi, lo, div)
	return q
}
