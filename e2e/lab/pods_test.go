// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// received is how many packets came in by the host's interface.
func received(t *testing.T, h *Host) uint64 {
	t.Helper()
	n, err := h.ReceivedPackets()
	must.OK(t, err)
	return n
}

// TestPrivilegedSpreadGoesToAllInTurns: every pod gets as much, the one that is
// left out gets nothing, and a sender that reads memory between sends less.
func TestPrivilegedSpreadGoesToAllInTurns(t *testing.T) {
	mark.Timed(t, "it judges rates or waits")
	l := newTestLab(t)
	network, err := l.Network("spread")
	must.OK(t, err)
	pods, err := network.Pods(t.Context(), 6, PodOptions{})
	must.OK(t, err)
	client, err := l.Client("client")
	must.OK(t, err)
	hosts := make([]*Host, len(pods))
	for i, p := range pods {
		hosts[i] = &p.Host
	}
	sinks, err := OpenSinks(hosts)
	must.OK(t, err)
	defer func() { _ = sinks.Close() }()
	before := make([]uint64, len(hosts))
	for i, h := range hosts {
		before[i] = received(t, h)
	}
	load := Spread{From: client, To: sinks.Rest(1), PayloadBytes: 100, Duration: 300 * time.Millisecond}
	sent, err := l.Spread(t.Context(), load)
	must.OK(t, err)
	if sent.Packets < 10_000 || sent.Refused > 0 || sent.Elapsed < load.Duration {
		t.Errorf("Spread = %+v, want some 100,000 packets and none refused", sent)
	}
	// A handful of packets are the kernel's own.
	const others = 20
	share := sent.Packets / uint64(len(hosts)-1)
	for i, h := range hosts {
		got := received(t, h) - before[i]
		if i == 0 && got > others || i > 0 && (got < share || got > share+others) {
			t.Errorf("host %d got %d packets of %d", i, got, sent.Packets)
		}
	}
	load.EvictBytes = 4 << 20
	slow, err := l.Spread(t.Context(), load)
	must.OK(t, err)
	if slow.Packets == 0 || slow.Packets > sent.Packets/2 {
		t.Errorf("with 4 MiB read between two packets %d are sent, without %d", slow.Packets, sent.Packets)
	}
}

// TestPrivilegedManyPods: they are made, told their names, given another cap and
// deleted, together.
func TestPrivilegedManyPods(t *testing.T) {
	l := newTestLab(t)
	network, err := l.Network("many", PodweirEntry(nil))
	must.OK(t, err)
	pods, err := network.Pods(t.Context(), 5, PodOptions{Bandwidth: RuntimeBandwidth(20_000_000), Namespace: "spaces"})
	must.OK(t, err)
	rate := func(p *Pod) string {
		var out strings.Builder
		err := p.Netns.Do(func() error {
			cmd := exec.CommandContext(t.Context(), "tc", "qdisc", "show", "dev", p.IfName)
			cmd.Stdout = &out
			return cmd.Run()
		})
		must.OK(t, err)
		return out.String()
	}
	for _, p := range pods {
		if got := rate(p); !strings.Contains(got, "rate 20Mbit") {
			t.Errorf("%s has %s, want 20Mbit", p.Name, got)
		}
	}
	must.OK(t, Reshape(t.Context(), pods[1:], RuntimeBandwidth(30_000_000)))
	for i, want := range []string{"rate 20Mbit", "rate 30Mbit", "rate 30Mbit", "rate 30Mbit", "rate 30Mbit"} {
		if got := rate(pods[i]); !strings.Contains(got, want) {
			t.Errorf("%s has %s, want %s", pods[i].Name, got, want)
		}
	}
	must.OK(t, DeletePods(t.Context(), pods))
	err = l.Node().Do(func() error {
		_, err := netlink.LinkByName(pods[4].HostIfName)
		return err
	})
	if !errors.As(err, &netlink.LinkNotFoundError{}) {
		t.Errorf("the device of a pod that is gone: %v", err)
	}
}

// interrupted is the shape of what iperf3 3.12 prints when it is ended by a
// signal.
const interrupted = `{
	"start": {"tcp_mss_default": 1448, "connected": [{"socket": 5}]},
	"intervals": [
		{"streams": [{"bytes": 600, "rtt": 2500}, {"bytes": 400, "rtt": 150}], "sum": {"start": 0, "end": 0.5, "bytes": 1000, "retransmits": 7, "sender": true}},
		{"streams": [{}], "sum": {"start": 0.5, "end": 1.0004, "bytes": 2000, "retransmits": 2}},
		{"streams": [{}], "sum": {"start": 1.0004, "end": 1.5, "bytes": 3000, "retransmits": 0}},
		{"streams": [{}], "sum": {"start": 1.5, "end": 1.5, "bytes": 500, "retransmits": 0}}
	],
	"end": {},
	"error": "interrupt - the client has terminated"
}`

func TestParseIperf(t *testing.T) {
	r, err := parseIperf([]byte(interrupted))
	must.OK(t, err)
	if r.Start.MSS != 1448 {
		t.Errorf("MSS = %d, want 1448", r.Start.MSS)
	}
	want := []BulkInterval{
		{End: 0.5, Bytes: 1000, Retransmits: 7, Flows: []float64{600, 400}, RoundTrips: []time.Duration{2500 * time.Microsecond, 150 * time.Microsecond}},
		{Start: 0.5, End: 1.0004, Bytes: 2000, Retransmits: 2, Flows: []float64{0}},
		{Start: 1.0004, End: 1.5, Bytes: 3000, Flows: []float64{0}},
		{Start: 1.5, End: 1.5, Bytes: 500, Flows: []float64{0}},
	}
	if diff := cmp.Diff(want, r.intervals()); diff != "" {
		t.Errorf("intervals (-want +got):\n%s", diff)
	}
}

func TestParseIperfTellsWhatIperfSays(t *testing.T) {
	_, err := parseIperf([]byte(`{"start": {}, "intervals": [], "error": "unable to connect"}`))
	if err == nil || !strings.Contains(err.Error(), "unable to connect") {
		t.Errorf("parseIperf = %v, want iperf3's error", err)
	}
	if _, err := parseIperf([]byte("iperf3: usage")); err == nil {
		t.Error("parseIperf of no JSON = nil error, want an error")
	}
}

func TestBetween(t *testing.T) {
	r, err := parseIperf([]byte(interrupted))
	must.OK(t, err)
	for name, tc := range map[string]struct {
		from, to           float64
		bytes, retransmits float64
		rates              int
	}{
		"everything but the empty interval": {0, 2, 6000, 9, 3},
		"warm-up left out":                  {0.5, 2, 5000, 2, 2},
		"half an interval is left out":      {0.7, 2, 3000, 0, 1},
		"an end some ms late is in":         {0, 1, 3000, 9, 2},
		"nothing":                           {3, 4, 0, 0, 0},
	} {
		w := Between(r.intervals(), tc.from, tc.to)
		if w.Bytes != tc.bytes || w.Retransmits != tc.retransmits || len(w.Rates) != tc.rates {
			t.Errorf("%s: Between(%v, %v) = %+v, want %v bytes, %v retransmits, %d rates",
				name, tc.from, tc.to, w, tc.bytes, tc.retransmits, tc.rates)
		}
	}
	if got := Between(nil, 0, 1).BitsPerSec(); got != 0 {
		t.Errorf("BitsPerSec() of nothing = %v, want 0", got)
	}
	w := Between([]BulkInterval{{End: 0.5, Bytes: 1000}}, 0, 1)
	if got, want := w.BitsPerSec(), 16000.0; got != want {
		t.Errorf("BitsPerSec() = %v, want %v", got, want)
	}
}

func TestListens(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue
   0: 0200A8C0:1451 00000000:0000 0A 00000000:00000000
   1: 0200A8C0:1452 0300A8C0:1453 01 00000000:00000000
`
	for suffix, want := range map[string]bool{":1451": true, ":1452": false, ":1453": false, ":9999": false} {
		if got := listens(table, suffix); got != want {
			t.Errorf("listens(%s) = %v, want %v", suffix, got, want)
		}
	}
}

// A thread of a higher real-time priority is to the watch what the machine below
// is: it takes the processor away.
func TestPrivilegedProcessorsAreSeenToBeAway(t *testing.T) {
	testutil.RequireRoot(t)
	// Go interrupts what runs for 10 ms.
	const taken, least = 12 * time.Millisecond, 5 * time.Millisecond
	p, err := WatchProcessors()
	must.OK(t, err)
	took := make(chan error)
	go func() { took <- keepProcessor(taken) }()
	must.OK(t, <-took)
	if longest := p.Stop(); longest < least {
		t.Errorf("longest time away = %v, want %v or more", longest, least)
	}
}

// keepProcessor lets nobody else use the first processor of this process.
func keepProcessor(last time.Duration) error {
	runtime.LockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	if err := takeProcessor(cpu, 2); err != nil {
		return err
	}
	for end := wiremeter.Now() + last; wiremeter.Now() < end; {
	}
	return nil
}
