// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package units

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// saturated stands for every number of 2^64-1 and more.
const saturated = math.MaxUint64

// maxDigits is how many significant digits are kept: 10^18 * 2^60, the largest
// product that a suffix can ask for, still fits 128 bits.
const maxDigits = 18

// decimal is digits * 10^exp10 * 2^exp2, a little more if inexact.
type decimal struct {
	negative bool
	digits   uint64
	exp10    int
	exp2     int
	inexact  bool
}

// scales are the suffixes of a Kubernetes quantity.
// Source: k8s.io/apimachinery pkg/api/resource, the grammar above type Quantity.
var scales = map[string]struct{ exp10, exp2 int }{
	"": {}, "n": {exp10: -9}, "u": {exp10: -6}, "m": {exp10: -3},
	"k": {exp10: 3}, "M": {exp10: 6}, "G": {exp10: 9},
	"T": {exp10: 12}, "P": {exp10: 15}, "E": {exp10: 18},
	"Ki": {exp2: 10}, "Mi": {exp2: 20}, "Gi": {exp2: 30},
	"Ti": {exp2: 40}, "Pi": {exp2: 50}, "Ei": {exp2: 60},
}

// parseQuantity reads a number with an SI, binary or exponent suffix exactly as
// Kubernetes does; false means that s is not a quantity.
func parseQuantity(s string) (decimal, bool) {
	d, suffix, ok := parseDecimal(s)
	if !ok {
		return decimal{}, false
	}
	if scale, known := scales[suffix]; known {
		d.exp10 += scale.exp10
		d.exp2 = scale.exp2
		return d, true
	}
	if suffix[0] != 'e' && suffix[0] != 'E' {
		return decimal{}, false
	}
	// 32 bits, as in Kubernetes: an exponent beyond is not a quantity.
	exp, err := strconv.ParseInt(suffix[1:], 10, 32)
	if err != nil {
		return decimal{}, false
	}
	d.exp10 += int(exp)
	return d, true
}

// parseDecimal reads sign, digits and point, and returns what follows them.
func parseDecimal(s string) (decimal, string, bool) {
	var d decimal
	if rest, found := strings.CutPrefix(s, "-"); found {
		d.negative, s = true, rest
	} else {
		s = strings.TrimPrefix(s, "+")
	}
	seen, point, kept := false, false, 0
	i := 0
	for ; i < len(s); i++ {
		c := s[i]
		if c == '.' && !point {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		seen = true
		kept = d.push(c-'0', point, kept)
	}
	return d, s[i:], seen
}

// push appends one digit and returns how many significant ones are kept.
func (d *decimal) push(digit byte, fraction bool, kept int) int {
	if kept == maxDigits {
		d.inexact = d.inexact || digit != 0
		if !fraction {
			d.exp10++
		}
		return kept
	}
	d.digits = d.digits*10 + uint64(digit)
	if fraction {
		d.exp10--
	}
	if d.digits == 0 {
		return 0
	}
	return kept + 1
}

// ceil rounds the magnitude up to an integer and saturates, as Quantity.Value
// of Kubernetes does (which saturates at 2^63-1). It says whether there was
// anything to round.
func (d decimal) ceil() (value uint64, rounded bool) {
	if d.digits == 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(d.digits, uint64(1)<<d.exp2)
	inexact := d.inexact
	for e := d.exp10; e > 0; e-- {
		over, low := bits.Mul64(lo, 10)
		if hi != 0 || over != 0 {
			return saturated, true
		}
		lo = low
	}
	for e := d.exp10; e < 0; e++ {
		var rest uint64
		hi, rest = hi/10, hi%10
		lo, rest = bits.Div64(rest, lo, 10)
		inexact = inexact || rest != 0
		if hi == 0 && lo == 0 {
			break
		}
	}
	if hi != 0 {
		return saturated, true
	}
	if inexact && lo != saturated {
		lo++
	}
	return lo, inexact
}

// ValueError says that a value is not accepted, and what is.
type ValueError struct {
	// Value is the value as it was written.
	Value string
	// Accepted is the accepted form and range.
	Accepted string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("%q is not %s", e.Value, e.Accepted)
}

// AcceptedRate describes a rate that podweir takes.
const AcceptedRate = "a rate in bits per second from 1k to 400G, written as a Kubernetes quantity such as 10M"

// ParseQuantity reads a Kubernetes quantity ("10M", "1.5Gi", "1e6"; m is milli)
// and returns its value rounded up to an integer, as kubelet does. The first 18
// significant digits count, which is far more than any range here asks for;
// what exceeds 2^64-1 is 2^64-1.
//
// Returns a [*ValueError] for what is not a quantity or is negative.
func ParseQuantity(s string) (uint64, error) {
	d, ok := parseQuantity(s)
	if !ok || (d.negative && d.digits != 0) {
		return 0, &ValueError{Value: s, Accepted: "a non-negative Kubernetes quantity such as 10M"}
	}
	v, _ := d.ceil()
	return v, nil
}

// ParseSize is [ParseQuantity] for what must not be rounded up to something
// from next to nothing: less than 1 is an error, so that nobody who writes 10m
// for ten million gets 1.
//
// Returns a [*ValueError] for what is not a quantity or is below 1.
func ParseSize(s string) (uint64, error) {
	d, ok := parseQuantity(s)
	v, rounded := d.ceil()
	if !ok || d.negative || v == 0 || (v == 1 && rounded) {
		return 0, &ValueError{Value: s, Accepted: "a Kubernetes quantity of at least 1 such as 64Ki"}
	}
	return v, nil
}

// ParseDuration reads a time such as "10ms" within a range, both ends included.
//
// Returns a [*ValueError] outside of it.
func ParseDuration(s string, lowest, highest time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < lowest || d > highest {
		return 0, &ValueError{
			Value:    s,
			Accepted: fmt.Sprintf("a time from %v to %v such as 50ms", lowest, highest),
		}
	}
	return d, nil
}

// ParsePerMille reads a share within a range, both ends included, written as a
// percentage ("90%") or a fraction ("0.9"), in steps of 0.1 %.
//
// Returns a [*ValueError] outside of it, and for a share that is not a whole
// number of thousandths.
func ParsePerMille(s string, lowest, highest PerMille) (PerMille, error) {
	bad := &ValueError{
		Value: s,
		Accepted: fmt.Sprintf("a share from %v to %v in steps of 0.1%%, written as 90%% or 0.9",
			lowest, highest),
	}
	number, percent := strings.CutSuffix(s, "%")
	d, rest, ok := parseDecimal(number)
	if !ok || rest != "" || d.inexact || (d.negative && d.digits != 0) {
		return 0, bad
	}
	d.exp10 += 3
	if percent {
		d.exp10 -= 2
	}
	// Whole thousandths only: 0.0005 is nobody's wish for 0.1 %.
	v, rounded := d.ceil()
	if rounded || v < uint64(lowest) || v > uint64(highest) {
		return 0, bad
	}
	return PerMille(v), nil
}
