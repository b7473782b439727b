// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"sync/atomic"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
)

// Buckets of waits, as in bpf/lib/wait.h: the first eight have one unit each, and from
// there on every octave has eight.
const (
	waitUnit  = 1 << 14 * time.Nanosecond
	waitSteps = 8
)

// Wait is how long the packets of a band waited in the queue since it was attached, as
// the classifier estimates it when a packet comes.
type Wait struct {
	// Band is light or heavy.
	Band    string  `json:"band"`
	Packets uint64  `json:"packets"`
	Seconds float64 `json:"seconds"`
	// P50 and P99 are quantiles.
	P50 float64 `json:"p50Seconds"`
	P99 float64 `json:"p99Seconds"`
	// Below counts the packets that waited for less than each of [WaitBounds].
	Below [len(WaitBounds)]uint64 `json:"-"`
}

// WaitBounds are the seconds of [Wait.Below], from 66 µs to 0.54 s. Each is twice the one
// before, and ends a bucket of the slab: the shortest four of the slab's linear buckets.
var WaitBounds = [...]float64{
	1 << 16 / 1e9, 1 << 17 / 1e9, 1 << 18 / 1e9, 1 << 19 / 1e9, 1 << 20 / 1e9, 1 << 21 / 1e9, 1 << 22 / 1e9, 1 << 23 / 1e9, 1 << 24 / 1e9,
	1 << 25 / 1e9, 1 << 26 / 1e9, 1 << 27 / 1e9, 1 << 28 / 1e9, 1 << 29 / 1e9,
}

// bands are named by PW_WAIT_LIGHT and PW_WAIT_HEAVY of bpf/lib/abi.h.
var bands = [...]string{"light", "heavy"}

// Waits returns how long packets of a direction waited, every band once. dir is where
// the interface's pins are.
func (n *Slab) Waits(dir string, d terms.Direction) ([]Wait, error) {
	s, err := n.mustFind(dir, d)
	if err != nil {
		return nil, err
	}
	out := make([]Wait, len(bands))
	for i, name := range bands {
		var buckets waitBuckets
		for j := range buckets {
			buckets[j] = atomic.LoadUint64(&s.State.Waits[i][j])
		}
		out[i] = buckets.wait(name, time.Duration(atomic.LoadUint64(&s.State.WaitedNs[i])))
	}
	return out, nil
}

// waitBuckets are packets by how long they waited.
type waitBuckets [len(image.State{}.Waits[0])]uint64

func (b *waitBuckets) wait(band string, sum time.Duration) Wait {
	w := Wait{Band: band, Seconds: sum.Seconds()}
	for i, n := range b {
		w.Packets += n
		for j, bound := range WaitBounds {
			if waitFrom(i+1).Seconds() <= bound {
				w.Below[j] += n
			}
		}
	}
	w.P50, w.P99 = b.quantile(0.5, w.Packets), b.quantile(0.99, w.Packets)
	return w
}

// waitFrom is the least wait of a bucket; that of the one behind the last is where the
// longest waits end that can be told apart.
func waitFrom(bucket int) time.Duration {
	octave := max(bucket/waitSteps-1, 0)
	return time.Duration(bucket-waitSteps*octave) << octave * waitUnit
}

// quantile is in seconds, 0 if nothing was counted.
func (b *waitBuckets) quantile(q float64, packets uint64) float64 {
	rest := q * float64(packets)
	for i, n := range b {
		if rest <= float64(n) && n > 0 {
			from, to := waitFrom(i).Seconds(), waitFrom(i+1).Seconds()
			return from + rest/float64(n)*(to-from)
		}
		rest -= float64(n)
	}
	return 0
}
