// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"os"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

func TestMain(m *testing.M) {
	if WorkerMain() {
		return
	}
	m.Run()
}

// newTestLab makes a lab that goes with the test.
func newTestLab(tb testing.TB) *Lab {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root: makes network namespaces")
	}
	l, err := New(tb.Context(), Options{})
	if err != nil {
		tb.Fatal(err)
	}
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
	if err != nil {
		tb.Fatal(err)
	}
	pod, err := network.Pod(tb.Context(), PodOptions{Bandwidth: KubeletBandwidth(20_000_000)})
	if err != nil {
		tb.Fatal(err)
	}
	client, err := l.Client("client")
	if err != nil {
		tb.Fatal(err)
	}
	return pod, client
}

func TestPrivilegedLoadPassesInBothFamilies(t *testing.T) {
	l := newTestLab(t)
	pod, client := mustPod(t, l)
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			echo, err := l.StartEcho(t.Context(), EchoLoad{
				From: client, To: &pod.Host, IPv6: v6,
				PerSecond: 200, Duration: 500 * time.Millisecond, Timeout: time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			open, err := l.StartHTTP(t.Context(), HTTPLoad{
				From: client, To: &pod.Host, IPv6: v6, ResponseBytes: 6000,
				PerSecond: 100, Duration: 500 * time.Millisecond, Timeout: time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			for what, wait := range map[string]struct {
				result func() (*Latencies, error)
				want   int
			}{
				"kept connection": {func() (*Latencies, error) { return echo.Wait(t.Context()) }, 100},
				"open loop":       {func() (*Latencies, error) { return open.Wait(t.Context()) }, 50},
			} {
				got, err := wait.result()
				if err != nil {
					t.Fatal(err)
				}
				if len(got.Samples) != wait.want || got.Failed() != 0 {
					t.Errorf("%s: %d samples, errors %v, want %d and none",
						what, len(got.Samples), got.Errors, wait.want)
				}
				t.Logf("%s: p50 %v p99 %v", what, got.Quantile(0.5), got.Quantile(0.99))
			}
		})
	}
}

func TestPrivilegedReferencePluginHoldsAnElephant(t *testing.T) {
	l := newTestLab(t)
	// A burst of its own: kubelet's is 512 MB.
	pod, client := mustPod(t, l, BandwidthEntry())
	meter, err := wiremeter.Attach(client.Netns, client.IfName, wiremeter.Received)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := meter.Close(); err != nil {
			t.Error(err)
		}
	}()
	from := wiremeter.Now()
	run, err := l.StartElephant(t.Context(), Elephant{
		From: &pod.Host, To: client, CongestionControl: "cubic", Duration: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	bulk, err := run.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	series, err := meter.Read(from, wiremeter.Now())
	if err != nil {
		t.Fatal(err)
	}
	got := Between(bulk.Received, 0, 2)
	t.Logf("%.1f Mbit/s of payload, wire %.1f Mbit/s, worst second %d bytes",
		got.BitsPerSec()/1e6, series.BitsPerSec()/1e6, series.Worst(time.Second))
}
