// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Latencies is what a latency load generator saw.
type Latencies struct {
	// Samples has one entry per request, from the time it was due to be sent
	// to the last byte of its response, ascending. A request that failed is
	// in it with the time until it was given up, so that failing cannot look
	// fast.
	Samples []time.Duration
	// Failed is the number of requests without a complete response, and Reason why one of them
	// has none.
	Failed int
	Reason string
	// Elapsed is the time from the first due request to the end of the load.
	Elapsed time.Duration
}

// PerSecond is the rate of complete responses.
func (l *Latencies) PerSecond() float64 {
	if l.Elapsed <= 0 {
		return 0
	}
	return float64(len(l.Samples)-l.Failed) / l.Elapsed.Seconds()
}

// Quantile is the q-quantile of the samples, 0 ≤ q ≤ 1.
func (l *Latencies) Quantile(q float64) time.Duration { return Quantile(l.Samples, q) }

// Quantile returns the smallest element of an ascending slice that at least
// the share q of the elements does not exceed (nearest rank); the zero value
// if the slice is empty. q outside 0 to 1 counts as the nearer end.
func Quantile[T cmp.Ordered](ascending []T, q float64) T {
	if len(ascending) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(q * float64(len(ascending))))
	return ascending[min(max(rank, 1), len(ascending))-1]
}

// Merge joins the samples of several runs.
func Merge(runs ...*Latencies) *Latencies {
	out := &Latencies{}
	for _, r := range runs {
		out.Samples = append(out.Samples, r.Samples...)
		out.Elapsed += r.Elapsed
		out.Failed += r.Failed
		out.Reason = cmp.Or(out.Reason, r.Reason)
	}
	slices.Sort(out.Samples)
	return out
}
