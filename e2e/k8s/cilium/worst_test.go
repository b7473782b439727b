// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	rounds = 10
	// roundTime is how long each round lasts, keptPerSecond how many requests a
	// kept connection has.
	roundTime     = 4 * time.Second
	keptPerSecond = 200
	// slow is what a request may take behind bulk at most: it must not wait in
	// the heavy band, which is 50 ms deep.
	slow = 40 * time.Millisecond
)

// TestPrivilegedWorstRequests looks at the slowest request of kept connections
// beside bulk, in fresh pods: one with limits, which has the bulk, and one
// without at the same time. A request that is slow in the first alone waited for
// podweir.
func TestPrivilegedWorstRequests(t *testing.T) {
	for _, s := range []cilium.Settings{cilium.Legacy, cilium.BPF} {
		t.Run(s.HostRouting(), func(t *testing.T) {
			bring(t, s)
			install(t)
			t.Cleanup(func() { uninstall(t) })
			asker := pod(t, "asker", "asker", 0, nil)
			bulk := pod(t, "bulk", "bulk", 0, nil)
			for i := range rounds {
				t.Run(fmt.Sprint(i), func(t *testing.T) { round(t, asker, bulk) })
			}
		})
	}
}

// round is one of fresh pods.
func round(t *testing.T, asker, bulk *workload.Pod) {
	t.Helper()
	limited := pod(t, "limited", "limited", 0, workload.Limits("100M", "100M"))
	control := pod(t, "control", "control", 0, nil)
	l, err := lab.New(t.Context(), lab.Options{})
	must.OK(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	hosts := map[*workload.Pod]*lab.Pod{}
	for _, p := range []*workload.Pod{asker, limited, control} {
		if hosts[p], err = l.Adopt(p.Name, p.NS.Path(), "eth0", p.IP); err != nil {
			t.Fatal(err)
		}
	}
	results := map[*workload.Pod]*lab.Latencies{}
	var began, stall, stalled time.Duration
	_, err = workload.Load{Pod: limited, Peer: bulk, Bits: 300_000_000}.While(t.Context(), func(ctx context.Context) error {
		began = wiremeter.Now()
		ended := make(chan struct{})
		defer close(ended)
		watched := make(chan [2]time.Duration, 1)
		go watch(ended, watched)
		runs := map[*workload.Pod]*lab.RequestsRun{}
		for _, p := range []*workload.Pod{limited, control} {
			var err error
			runs[p], err = l.StartEcho(ctx, lab.EchoLoad{
				From: &hosts[asker].Host, To: &hosts[p].Host,
				PerSecond: keptPerSecond, Duration: roundTime, Timeout: 3 * time.Second,
			})
			if err != nil {
				return err
			}
		}
		var errs []error
		for p, run := range runs {
			var err error
			results[p], err = run.Wait(ctx)
			errs = append(errs, err)
		}
		ended <- struct{}{}
		w := <-watched
		stall, stalled = w[0], w[1]
		return errors.Join(errs...)
	})
	must.OK(t, err)
	for _, p := range []*workload.Pod{limited, control} {
		r := results[p]
		t.Logf("%s: p50 %v, p99 %v, worst %v at %v", p.Name, r.Quantile(0.5), r.Quantile(0.99), r.Worst.Took, r.Worst.Due-began)
	}
	t.Logf("longest time without a processor: %v at %v", stall, stalled-began)
	if worst, other := results[limited].Worst, results[control].Worst; worst.Took > slow && other.Took < worst.Took/2 && stall < worst.Took/2 {
		t.Errorf("a request took %v; the slowest of the control took %v, and the longest wait for a processor %v: it waited for podweir",
			worst.Took, other.Took, stall)
	}
}

// watch asks for a processor every millisecond until ended, and tells the
// longest time that it did not get one, and when.
func watch(ended <-chan struct{}, out chan<- [2]time.Duration) {
	runtime.LockOSThread()
	var worst, at time.Duration
	for {
		before := wiremeter.Now()
		_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
		if late := wiremeter.Now() - before - time.Millisecond; late > worst {
			worst, at = late, before
		}
		select {
		case <-ended:
			out <- [2]time.Duration{worst, at}
			return
		default:
		}
	}
}
