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
	l := must.Get(New(tb.Context(), Options{}))(tb)
	tb.Cleanup(func() { must.OK(tb, l.Close()) })
	return l
}

func mustPod(tb testing.TB, l *Lab, chained ...Entry) (*Pod, *Host) {
	tb.Helper()
	network := must.Get(l.Network("net", chained...))(tb)
	pod := must.Get(network.Pod(tb.Context(), PodOptions{Bandwidth: RuntimeBandwidth(20_000_000)}))(tb)
	client := must.Get(l.Client("client"))(tb)
	return pod, client
}

// After Close nothing is left: no namespace, no process, no directory.
func TestPrivilegedCloseLeavesNothing(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	run := must.Get(l.StartElephant(t.Context(), Elephant{
		From: &pod.Host, To: client, Duration: time.Minute,
	}))(t)
	left := func() []string {
		var out []string
		for _, pattern := range []string{netnsDir, stateRoot} {
			found := must.Get(filepath.Glob(filepath.Join(pattern, l.Name()+"*")))(t)
			out = append(out, found...)
		}
		return out
	}
	must.Len(t, "there before Close: the node, the pod, the client and the directory", 4, left())
	must.OK(t, l.Close())
	must.Len(t, "left after Close", 0, left())
	if run.client.running() || run.server.running() {
		t.Error("iperf3 runs after Close")
	}
	must.OK(t, l.Close()) // once more
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
		must.Be(t, name, tc.want, Quantile(tc.in, tc.q))
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
	must.Be(t, "responses per second, of which a failure is none", 1, got.PerSecond())
	must.Be(t, "Quantile(0.99), with the time until a request was given up", time.Second, got.Quantile(0.99))
}
