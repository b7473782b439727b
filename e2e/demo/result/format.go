// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package result

import (
	"fmt"
	"strings"

	"github.com/podweir/podweir/e2e/figures"
)

// Mega writes a rate in Mbit/s with three significant digits.
func Mega(bitsPerSec float64) string { return Digits(bitsPerSec / 1e6) }

// Milli writes a time in ms with three significant digits.
func Milli(ms float64) string { return Digits(ms) }

// Digits writes three significant digits, and no more than two decimals.
func Digits(v float64) string {
	switch {
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// OfCap writes rates as fractions of the cap.
func (r *Row) OfCap(rates ...float64) string {
	if r.CapBitRate == 0 {
		return "-"
	}
	var parts []string
	for _, v := range rates {
		parts = append(parts, share(v/float64(r.CapBitRate)))
	}
	return strings.Join(parts, " / ")
}

// CapName writes a rate as an annotation would: 10M.
func CapName(bitsPerSec uint64) string {
	if bitsPerSec == 0 {
		return "no cap"
	}
	return figures.Rate(bitsPerSec)
}

// Name is what shapes, with what it does not, and whether it is a copy of a product's limit.
func (r *Row) Name() string {
	name := r.Title
	if r.Case == "e" || r.Case == "f" {
		name = "copy of " + name
	}
	if r.IngressOnly {
		name += ", ingress"
	}
	return name
}

// OutIn writes a number of each direction, and "-" for one without a limit.
func (r *Row) OutIn(out, in string) string {
	if r.IngressOnly {
		out = "-"
	}
	return out + " / " + in
}

// Worst is the largest of what f says of the directions that are limited.
func (r *Row) Worst(f func(*Flow) float64) float64 {
	if r.IngressOnly {
		return f(&r.Ingress)
	}
	return max(f(&r.Egress), f(&r.Ingress))
}

// FromStart is the worst second of all, in bits, for [Row.Worst].
func FromStart(f *Flow) float64 { return f.WorstSecondFromStart }

// AfterWarmUp is the worst second of those behind slow start and bursts.
func AfterWarmUp(f *Flow) float64 { return f.WireSpread[2] }

// Resent writes segments that were sent again in ten seconds.
func (r *Row) Resent() string {
	return r.OutIn(fmt.Sprintf("%.0f", r.Egress.RetransmitsPer10s), fmt.Sprintf("%.0f", r.Ingress.RetransmitsPer10s))
}

// share has the digits in which a cap is told from its excess.
func share(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.3f", v)
	}
	return Digits(v)
}
