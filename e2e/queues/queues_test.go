// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/plugin/testutil"
)

func TestMain(m *testing.M) {
	if lab.WorkerMain() {
		return
	}
	m.Run()
}

func newRig(t *testing.T) *traffic.Rig {
	t.Helper()
	testutil.RequireRoot(t)
	r, err := traffic.NewRig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return r
}

func newPod(t *testing.T, r *traffic.Rig, bitsPerSec uint64, keys map[string]any) *traffic.Target {
	t.Helper()
	pod, err := r.Shaped(t.Context(), bitsPerSec, keys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pod.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return pod
}

func TestWorstByCounter(t *testing.T) {
	at := func(ms int, bytes uint64) sample {
		d := time.Duration(ms) * time.Millisecond
		return sample{d, d + time.Millisecond, bytes}
	}
	for name, tc := range map[string]struct {
		samples []sample
		want    float64
	}{
		"none":            {nil, 0},
		"less than 1 s":   {[]sample{at(0, 0), at(900, 5000)}, 0},
		"a steady second": {[]sample{at(0, 0), at(501, 501), at(1002, 1003)}, 1000},
		"the worst of two": {[]sample{
			at(0, 0), at(1002, 1003), at(2004, 1003+3009), at(3006, 1003+3009+1003),
		}, 3000},
	} {
		if got := worstByCounter(tc.samples); got < tc.want*0.999 || got > tc.want*1.001 {
			t.Errorf("%s: worstByCounter() = %v, want %v", name, got, tc.want)
		}
	}
}

// fq drops a packet of a flow that has 100 in its queue by default
// (net/sched/sch_fq.c, flow_plimit), when the program has moved the clock on
// for it already: a flood gets a part of its cap. podweir's limits are
// larger; CHECK tells when somebody puts the default back.
func TestPrivilegedFlowLimitOfFQ(t *testing.T) {
	testutil.RequireQdisc(t, "fq")
	const capacity = 10 * mbit
	r := newRig(t)
	pod := newPod(t, r, capacity, map[string]any{"queue": "fq", "policy": "flat", "horizon": "500ms"})
	used := func() float64 {
		t.Helper()
		var got *traffic.CapResult
		// Others may have had the processor meanwhile.
		for try := 0; try < 3 && (got == nil || !got.Offered()); try++ {
			var err error
			got, err = r.MeasureOn(t.Context(), pod, traffic.Case{
				Cap: capacity, Direction: traffic.Ingress, Load: traffic.UDP, Duration: 4 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !got.Offered() {
			t.Fatalf("the generator offers %.1f Mbit/s only", got.Carried/mbit)
		}
		t.Logf("used %.3f of the cap, worst second %.4f", got.Used, got.WorstShare())
		return got.Used
	}
	ours := used()
	limit := func(packets string) {
		t.Helper()
		tc(t, r.Lab.Node(), "qdisc", "change", "dev", pod.HostIfName, "root", "fq", "flow_limit", packets)
	}
	limit("100")
	trapped := used()
	if err := pod.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "fq limits are") {
		t.Errorf("CHECK = %v, want the limits that were changed", err)
	}
	limit("10000")
	cured := used()
	// Shares of one run on one machine, which may be slow: 0.25 and 0.95 where
	// it is not.
	if ours < 2*trapped || cured < 2*trapped {
		t.Errorf("used %.3f of the cap by podweir's limits, %.3f by the default, %.3f with 10,000 again; "+
			"want the default to be less than half of the others", ours, trapped, cured)
	}
}

// A process that stamps its packets itself (SO_TXTIME, which needs no
// privilege) cannot have them leave earlier: podweir's program overwrites the
// stamp. 24 sockets whose stamps were kept broke the cap by 29 %.
func TestPrivilegedOwnStampsDoNotBreakTheCap(t *testing.T) {
	testutil.RequireQdisc(t, "fq")
	const (
		capacity = 10 * mbit
		last     = 4 * time.Second
	)
	r := newRig(t)
	// The sockets do stamp: fq alone keeps what is stamped for later.
	tc(t, r.Free.Netns, "qdisc", "add", "dev", r.Free.IfName, "root", "fq")
	began := wiremeter.Now()
	if err := stampedFlood(t.Context(), r.Free, r.Client, stamped{
		BitsPerSec: capacity, Duration: 200 * time.Millisecond, Ahead: []time.Duration{time.Second},
	}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, 5*time.Second, "what was stamped has come", func() bool {
		return wiremeter.Now() > began+1500*time.Millisecond
	})
	if early := wire(t, r.Free, began, began+900*time.Millisecond); early > 1000 {
		t.Errorf("%d bytes came before their stamp: the sockets do not stamp", early)
	}
	if all := wire(t, r.Free, began, began+1500*time.Millisecond); all < capacity/8/5/2 {
		t.Errorf("%d bytes came with their stamp, want most of %d", all, capacity/8/5)
	}
	for _, policy := range []string{"flat", "strict"} {
		t.Run(policy, func(t *testing.T) {
			pod := newPod(t, r, capacity, fq(policy, ""))
			began := wiremeter.Now()
			err := stampedFlood(t.Context(), pod, r.Client, stamped{
				BitsPerSec: 3 * capacity, Duration: last,
				// Long ago, soon, and all at the same moments.
				Ahead: []time.Duration{-time.Second, 0, 5 * time.Millisecond, 40 * time.Millisecond, together},
			})
			if err != nil {
				t.Fatal(err)
			}
			s, err := pod.Wire(traffic.Egress, began, wiremeter.Now())
			if err != nil {
				t.Fatal(err)
			}
			worst := float64(s.Worst(time.Second)) * 8 / capacity
			t.Logf("worst second %.4f of the cap, mean %.4f", worst, s.BitsPerSec()/capacity)
			// An emulated machine is late by 30 ms now and then, and sends then
			// what was due meanwhile.
			if worst > 1.05 || worst < 0.2 {
				t.Errorf("worst second %.4f of the cap, want 0.2 to 1.05", worst)
			}
		})
	}
}

func wire(t *testing.T, pod *traffic.Target, from, to time.Duration) uint64 {
	t.Helper()
	s, err := pod.Wire(traffic.Egress, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return s.Total()
}

// The queues that auto makes hold the cap and let it be used, in every place:
// also through the ifb, by whichever redirect the kernel's self-test found.
func TestPrivilegedCapHoldsInEveryPlace(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	const capacity = 10 * mbit
	r := newRig(t)
	for _, w := range ways {
		if w.name != "tbf" {
			continue
		}
		d := w.directions[0]
		t.Run(w.place, func(t *testing.T) {
			pod := newPod(t, r, capacity, w.keys)
			for _, load := range []traffic.Load{traffic.TCP1, traffic.UDP} {
				// That the cap is used to 0.97 is tested where processors keep time;
				// here, that it is used at all. A machine that had no processor for
				// this gets two more chances.
				used := 0.0
				for try := 0; try < 3 && used < 0.5; try++ {
					used = max(used, holds(t, r, pod, traffic.Case{
						Cap: capacity, Direction: d, Load: load, Duration: 3 * time.Second,
					}))
				}
				if used < 0.5 {
					t.Errorf("%s: %.3f of the cap used, want 0.5", load.Name, used)
				}
			}
		})
	}
}

// holds measures a case, fails the test if it exceeds the cap, and returns the
// share of it that was used.
func holds(t *testing.T, r *traffic.Rig, pod *traffic.Target, c traffic.Case) float64 {
	t.Helper()
	got, err := r.MeasureOn(t.Context(), pod, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: worst second %.4f of the cap, used %.3f, unshaped %.0f Mbit/s",
		c.Load.Name, got.WorstShare(), got.Used, got.Carried/mbit)
	// An emulated processor takes packets from the wire up to 20 ms late, and
	// the meter is behind that. Policing is at 1.28 here.
	if limit := got.Limit() + c.Cap/8/50; got.Worst > limit {
		t.Errorf("%s: %d bytes in a second, at most %d expected", c.Load.Name, got.Worst, limit)
	}
	return got.Used
}
