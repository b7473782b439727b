// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "the package measures for other tests, and podweir is not in it")

func TestMain(m *testing.M) {
	askOnTheMainThread()
	if WorkerMain() {
		return
	}
	m.Run()
}

// newTestLab makes a lab that goes with the test.
func newTestLab(tb testing.TB) *Lab {
	tb.Helper()
	return newTestLabWith(tb, Options{})
}

func newTestLabWith(tb testing.TB, opts Options) *Lab {
	tb.Helper()
	testutil.RequireRoot(tb)
	l, err := New(tb.Context(), opts)
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

func TestPrivilegedLoadPassesInBothFamilies(t *testing.T) {
	mark.Timed(t, "it judges rates or waits")
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			echo, err := l.StartEcho(t.Context(), EchoLoad{
				From: client, To: &pod.Host, IPv6: v6,
				PerSecond: 200, Duration: 500 * time.Millisecond, Timeout: time.Second,
			})
			must.OK(t, err)
			open, err := l.StartHTTP(t.Context(), HTTPLoad{
				From: client, To: &pod.Host, IPv6: v6, ResponseBytes: 6000,
				PerSecond: 100, Duration: 500 * time.Millisecond, Timeout: time.Second,
			})
			must.OK(t, err)
			for what, wait := range map[string]struct {
				result func() (*Latencies, error)
				want   int
			}{
				"kept connection": {func() (*Latencies, error) { return echo.Wait(t.Context()) }, 100},
				"open loop":       {func() (*Latencies, error) { return open.Wait(t.Context()) }, 50},
			} {
				got, err := wait.result()
				must.OK(t, err)
				if len(got.Samples) != wait.want || got.Failed() != 0 {
					t.Errorf("%s: %d samples, errors %v, want %d and none",
						what, len(got.Samples), got.Errors, wait.want)
				}
				t.Logf("%s: p50 %v p99 %v", what, got.Quantile(0.5), got.Quantile(0.99))
			}
		})
	}
}

// bulkThrough returns what passes the reference plugin in two seconds at
// 20 Mbit/s with a given burst, in bits.
func bulkThrough(t *testing.T, burst uint64) *wiremeter.Series {
	t.Helper()
	l := newTestLab(t)
	network, err := l.Network("net", BandwidthEntry())
	must.OK(t, err)
	pod, err := network.Pod(t.Context(), PodOptions{
		Bandwidth: &Bandwidth{EgressRate: 20e6, EgressBurst: burst},
	})
	must.OK(t, err)
	client, err := l.Client("client")
	must.OK(t, err)
	meter, err := wiremeter.Attach(client.Netns, client.IfName, wiremeter.Received)
	must.OK(t, err)
	defer func() {
		if err := meter.Close(); err != nil {
			t.Error(err)
		}
	}()
	from := wiremeter.Now()
	run, err := l.StartElephant(t.Context(), Elephant{
		From: &pod.Host, To: client, Duration: 2 * time.Second,
	})
	must.OK(t, err)
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	series, err := meter.Read(from, wiremeter.Now())
	must.OK(t, err)
	return series
}

// The lab sees a shaper and the lack of one: the reference plugin holds the
// cap with a small burst, and does not with the burst that containerd hands down.
func TestPrivilegedMeterTellsAShaperFromNone(t *testing.T) {
	mark.Timed(t, "it judges rates or waits")
	t.Parallel()
	t.Run("64 kB burst holds", func(t *testing.T) {
		t.Parallel()
		got := float64(bulkThrough(t, 64_000*8).Worst(time.Second))
		// The cap is 2.5 MB/s; the burst and a busy machine's bunching are
		// 64 kB and some ms.
		if got < 2.3e6 || got > 2.7e6 {
			t.Errorf("worst second = %.0f bytes, want 2.5 MB and the burst", got)
		}
	})
	t.Run("the runtime's burst does not", func(t *testing.T) {
		t.Parallel()
		if got := float64(bulkThrough(t, RuntimeBurst).Worst(time.Second)); got < 25e6 {
			t.Errorf("worst second = %.0f bytes, want far more than the cap of 2.5 MB", got)
		}
	})
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

// A plugin's own error message reaches the caller, and the pod is gone.
func TestPrivilegedFailedAddIsTold(t *testing.T) {
	l := newTestLab(t)
	network, err := l.Network("net", BandwidthEntry())
	must.OK(t, err)
	_, err = network.Pod(t.Context(), PodOptions{Name: "bad", Bandwidth: &Bandwidth{EgressRate: 10e6}})
	if err == nil || !strings.Contains(err.Error(), "burst") {
		t.Fatalf("Pod without a burst = %v, want the bandwidth plugin's words about the burst", err)
	}
	if _, err := os.Stat(filepath.Join(netnsDir, l.Name()+"-bad")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of the failed pod's namespace = %v, want that it does not exist", err)
	}
}
