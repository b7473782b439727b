// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/rivals"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// felix asserts what Calico's agent wants on a pod's host side.
type felix struct {
	rig    *Rig
	device string
	// bitsPerSec is the pod's limit, as it reads it from the same annotation; 0
	// is a pod without one.
	bitsPerSec uint64
}

func (f *felix) assert() error { return rivals.Calico(f.rig.Lab.Node(), f.device, f.bitsPerSec) }

// start asserts each second until the test ends, and looks each time, as podweir's
// agent does, for what it would have to mend. It counts both.
func (f *felix) start(t *testing.T, pod *Target) (asserted, mends *atomic.Int64) {
	t.Helper()
	if err := f.assert(); err != nil {
		t.Fatal(err)
	}
	asserted, mends = &atomic.Int64{}, &atomic.Int64{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		var err error
		for tick := time.NewTicker(time.Second); err == nil; {
			select {
			case <-ctx.Done():
				tick.Stop()
				done <- nil
				return
			case <-tick.C:
				err = f.assert()
				asserted.Add(1)
			}
			if different := pod.Check(ctx); different != nil && ctx.Err() == nil {
				mends.Add(1)
				t.Logf("CHECK: %v", different)
			}
		}
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the double of Felix: %v", err)
		}
	})
	return asserted, mends
}

// Beside Calico 3.30 and later, which owns the queues of the host side, what the
// agent writes by Calico's profile keeps the limits through a minute in which Felix
// asserts itself each second: it loses no more than a tuned reference plugin, a kept
// connection does not wait, and there is at most one change to make.
func TestPrivilegedFelixOwnsTheHostSide(t *testing.T) {
	mark.Nightly(t, "it takes two minutes, most of them a double of Felix that asserts itself each second")
	const capacity = 20 * mbit
	r := newRig(t)
	load := func(d Direction, last time.Duration) Case {
		return Case{Cap: capacity, Direction: d, Load: TCP1, Duration: last}
	}
	reference, err := r.Reference(t.Context(), capacity, TunedBurst)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reference.closeMeters() })
	tuned := map[Direction]*CapResult{}
	for _, d := range Directions {
		if tuned[d], err = r.MeasureOn(t.Context(), reference, load(d, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name      string
		annotated uint64
		last      map[Direction]time.Duration
	}{
		{"annotated", capacity, map[Direction]time.Duration{Ingress: time.Minute, Egress: 10 * time.Second}},
		{"limited by podweir's defaults", 0, map[Direction]time.Duration{Ingress: 10 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := shaped(t, r, capacity, map[string]any{"ingressPlace": "prefer-ifb", "hostHook": "tcx"})
			asserted, mends := (&felix{r, pod.HostIfName, tt.annotated}).start(t, pod)
			for d, last := range tt.last {
				if err := pod.freshMeters(); err != nil {
					t.Fatal(err)
				}
				got, err := r.MeasureOn(t.Context(), pod, load(d, last))
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%v, %v: worst second %.4f of the cap, used %.3f, sent again %.0f and %.0f in %.0f s (tuned reference plugin %.0f and %.0f in %.0f s)",
					d, last, got.WorstShare(), got.Used, got.Early, got.Late, got.LateSeconds, tuned[d].Early, tuned[d].Late, tuned[d].LateSeconds)
				if err := errors.Join(got.Err(), RetransmitsErr(got, tuned[d])); err != nil {
					t.Errorf("%v: %v", d, err)
				}
			}
			kept, err := pod.KeptBeside(t.Context(), Ingress, TCP1, capacity, 2, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("kept connection, p50 and p99: %v %v, bystander %v %v", kept.Pod.Quantile(0.5), kept.Pod.Quantile(0.99),
				kept.Bystander.Quantile(0.5), kept.Bystander.Quantile(0.99))
			if n := kept.Pod.Failed(); n != 0 {
				t.Errorf("%d requests without a response: %v", n, kept.Pod.Errors)
			}
			// One packet in front of it takes 0.6 ms at this cap.
			if a, b := kept.Pod.Quantile(0.5), kept.Bystander.Quantile(0.5); a > 2*b+time.Millisecond {
				t.Errorf("median %v, bystander %v", a, b)
			}
			t.Logf("asserted %d times, %d times something to mend", asserted.Load(), mends.Load())
			if minutes := asserted.Load()/60 + 1; mends.Load() > minutes {
				t.Errorf("%d times something to mend in %d s", mends.Load(), asserted.Load())
			}
		})
	}
}
