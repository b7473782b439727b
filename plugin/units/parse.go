// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package units

import (
	"fmt"
	"strings"
	"time"
)

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
