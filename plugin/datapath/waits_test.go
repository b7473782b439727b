// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"math"
	"testing"
	"time"
)

// Buckets meet without a gap, and the bounds are where some of them do.
func TestWaitBuckets(t *testing.T) {
	t.Parallel()
	for b := range len(waitBuckets{}) {
		from, to := waitFrom(b), waitFrom(b+1)
		if from >= to {
			t.Errorf("bucket %d is from %v to %v", b, from, to)
		}
		if b >= waitSteps && float64(to-from) > float64(from)/waitSteps {
			t.Errorf("bucket %d, from %v to %v, is wider than an eighth", b, from, to)
		}
	}
	// As wait_bucket of bpf/lib/wait.h counts them.
	for b, units := range map[int]time.Duration{0: 0, 7: 7, 8: 8, 15: 15, 16: 16, 17: 18, 24: 32, 127: 15 << 14} {
		if got := waitFrom(b); got != units<<14 {
			t.Errorf("bucket %d is from %v, want %v", b, got, units<<14)
		}
	}
	if WaitBounds[0] > 100e-6 {
		t.Errorf("waits of 100 µs are below the first bound, %v s", WaitBounds[0])
	}
	for i, bound := range WaitBounds {
		if i > 0 && bound != 2*WaitBounds[i-1] {
			t.Errorf("the bound %v s is not twice the one before, %v s", bound, WaitBounds[i-1])
		}
		found := false
		for b := range len(waitBuckets{}) {
			found = found || waitFrom(b).Seconds() == bound
		}
		if !found {
			t.Errorf("no bucket begins at %v s", bound)
		}
	}
}

func TestWaitQuantiles(t *testing.T) {
	t.Parallel()
	if w := (&waitBuckets{}).wait("light", 0); w.P50 != 0 || w.Packets != 0 {
		t.Errorf("without packets: %+v", w)
	}
	// As many packets at every wait up to 100 ms.
	var b waitBuckets
	for ms := 0.01; ms < 100; ms += 0.01 {
		at := time.Duration(ms * float64(time.Millisecond))
		for i := range b {
			if at >= waitFrom(i) && at < waitFrom(i+1) {
				b[i]++
			}
		}
	}
	w := b.wait("heavy", 500*time.Second)
	for name, of := range map[string][2]float64{"p50": {w.P50, 0.05}, "p99": {w.P99, 0.099}, "sum": {w.Seconds, 500}} {
		if math.Abs(of[0]-of[1]) > 0.01*of[1] {
			t.Errorf("%s = %v, want %v", name, of[0], of[1])
		}
	}
	if got, want := float64(w.Below[10]), 6710.; math.Abs(got-want) > 2 {
		t.Errorf("%v packets waited for less than 67.1 ms, want %v", got, want)
	}
	if w.Below[len(w.Below)-1] != w.Packets {
		t.Errorf("%d of %d packets waited for less than 0.5 s", w.Below[len(w.Below)-1], w.Packets)
	}
}
