// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "the package measures for other tests, and podweir is not in it")

func TestMain(m *testing.M) {
	if WorkerMain() {
		return
	}
	m.Run()
}

// newTestLab makes a lab that goes with the test.
func newTestLab(tb testing.TB) *Lab {
	tb.Helper()
	testutil.RequireRoot(tb)
	l, err := New(tb.Context(), Options{})
	must.OK(tb, err)
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("Close() = %v, want nil", err)
		}
	})
	return l
}

func mustPod(tb testing.TB, l *Lab, chained ...Entry) (*Pod, *Host) {
	tb.Helper()
	network, err := l.Network("net", chained...)
	must.OK(tb, err)
	pod, err := network.Pod(tb.Context(), PodOptions{Bandwidth: RuntimeBandwidth(20_000_000)})
	must.OK(tb, err)
	client, err := l.Client("client")
	must.OK(tb, err)
	return pod, client
}

// After Close nothing is left: no namespace, no process, no directory.
func TestPrivilegedCloseLeavesNothing(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	run, err := l.StartElephant(t.Context(), Elephant{
		From: &pod.Host, To: client, Duration: time.Minute,
	})
	must.OK(t, err)
	left := func() []string {
		var out []string
		for _, pattern := range []string{netnsDir, stateRoot} {
			found, err := filepath.Glob(filepath.Join(pattern, l.Name()+"*"))
			must.OK(t, err)
			out = append(out, found...)
		}
		return out
	}
	if len(left()) != 4 {
		t.Fatalf("before Close: %v, want the node, the pod, the client and the directory", left())
	}
	must.OK(t, l.Close())
	if got := left(); len(got) != 0 {
		t.Errorf("after Close: %v, want nothing", got)
	}
	if run.client.running() || run.server.running() {
		t.Error("iperf3 runs after Close")
	}
	if err := l.Close(); err != nil {
		t.Errorf("second Close() = %v, want nil", err)
	}
}

func TestQuantile(t *testing.T) {
	var hundred []int
	for i := range 100 {
		hundred = append(hundred, i+1)
	}
	for name, tc := range map[string]struct {
		in   []int
		q    float64
		want int
	}{
		"nothing":                         {nil, 0.5, 0},
		"one element is every quantile":   {[]int{7}, 0.99, 7},
		"median of two is the lower":      {[]int{1, 2}, 0.5, 1},
		"p99 of a hundred is the 99th":    {hundred, 0.99, 99},
		"p99 of 101 is above 99 %":        {append(slices.Clone(hundred), 101), 0.99, 100},
		"0 is the smallest":               {hundred, 0, 1},
		"1 is the largest":                {hundred, 1, 100},
		"below the range is the smallest": {hundred, -1, 1},
		"above the range is the largest":  {hundred, 2, 100},
	} {
		if got := Quantile(tc.in, tc.q); got != tc.want {
			t.Errorf("%s: Quantile(%v) = %v, want %v", name, tc.q, got, tc.want)
		}
	}
}

func TestLatenciesCountFailures(t *testing.T) {
	var rec recorder
	rec.add(3*time.Millisecond, nil)
	rec.add(time.Second, os.ErrDeadlineExceeded)
	rec.add(time.Millisecond, nil)
	got := rec.result(2 * time.Second)
	want := &Latencies{
		Samples: []time.Duration{time.Millisecond, 3 * time.Millisecond, time.Second},
		Failed:  1, Reason: "i/o timeout", Elapsed: 2 * time.Second,
	}
	must.Match(t, "result", want, got)
	if rate := got.PerSecond(); rate != 1 {
		t.Errorf("PerSecond() = %v, want 1: a failure is no response", rate)
	}
	if p99 := got.Quantile(0.99); p99 != time.Second {
		t.Errorf("Quantile(0.99) = %v, want the 1s until the request was given up", p99)
	}
}
