// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package wiremeter_test

import (
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "the package measures for other tests, and podweir is not in it")

func TestMain(m *testing.M) {
	if lab.WorkerMain() {
		return
	}
	m.Run()
}

// ends are a pod and a client of a lab that goes with the test.
func ends(t *testing.T) (*lab.Lab, *lab.Pod, *lab.Host) {
	t.Helper()
	testutil.RequireRoot(t)
	l := must.Get(lab.New(t.Context(), lab.Options{}))(t)
	t.Cleanup(func() { must.OK(t, l.Close()) })
	network := must.Get(l.Network("plain"))(t)
	pod := must.Get(network.Pod(t.Context(), lab.PodOptions{}))(t)
	client := must.Get(l.Client("client"))(t)
	return l, pod, client
}

// attach puts a meter of each kind on the way of packets to a host.
func attach(tb testing.TB, h *lab.Host) map[string]*wiremeter.Meter {
	tb.Helper()
	meters := map[string]*wiremeter.Meter{}
	for name, dir := range map[string]wiremeter.Direction{"received": wiremeter.Received, "delivered": wiremeter.Delivered} {
		if dir == wiremeter.Received && !testutil.HaveTCX() {
			continue
		}
		m := must.Get(wiremeter.Attach(h.Netns, h.IfName, dir))(tb)
		meters[name] = m
		tb.Cleanup(func() { must.OK(tb, m.Close()) })
	}
	return meters
}

func read(tb testing.TB, m *wiremeter.Meter, from time.Duration) *wiremeter.Series {
	tb.Helper()
	return must.Get(m.Read(from, wiremeter.Now()))(tb)
}

// The sender's count of datagrams, with headers, is what the meter must see,
// whether they travel one by one or as segments of large packets.
func TestPrivilegedUDPIsCountedToTheByte(t *testing.T) {
	l, pod, client := ends(t)
	const ethernet = 14
	for name, flood := range map[string]lab.UDPFlood{
		"IPv4":               {PayloadBytes: 1000},
		"IPv6":               {PayloadBytes: 1000, IPv6: true},
		"IPv4 smallest":      {PayloadBytes: 1},
		"IPv4 segments":      {PayloadBytes: 1400, Segments: 40},
		"IPv6 segments":      {PayloadBytes: 700, Segments: 60, IPv6: true},
		"IPv4 rotated ports": {PayloadBytes: 200, RotatePorts: true},
		"IPv6 rotated ports": {PayloadBytes: 200, RotatePorts: true, IPv6: true},
	} {
		t.Run(name, func(t *testing.T) {
			meters := attach(t, client)
			flood.From, flood.To = &pod.Host, client
			flood.BitsPerSec, flood.Duration, flood.TOS = 20e6, 300*time.Millisecond, lab.ECT0
			from := wiremeter.Now()
			run := must.Get(l.StartFlood(t.Context(), flood))(t)
			sent := must.Get(run.Wait(t.Context()))(t)
			if sent.Refused != 0 || sent.Packets == 0 {
				t.Fatalf("sent %d datagrams and %d were refused, want some and none", sent.Packets, sent.Refused)
			}
			want := sent.Bytes + sent.Packets*ethernet
			sends := sent.Packets / uint64(max(1, flood.Segments))
			for name, meter := range meters {
				got := read(t, meter, from)
				// Address resolution and multicast reports may pass in between, each
				// in a packet of its own: 42 bytes of ARP to 190 with six groups.
				others := got.Packets - sends
				if got.Packets < sends || got.Total() < want+42*others || got.Total() > want+190*others {
					t.Errorf("%s: counted %d bytes in %d packets, want %d in %d and 42 to 190 in each other one",
						name, got.Total(), got.Packets, want, sends)
				}
			}
		})
	}
}

// A full TCP segment has 1448 bytes of payload and 1514 on the wire: a count
// that forgets the headers of GSO segments is 4 % short.
func TestPrivilegedTCPSegmentsAreCountedWithTheirHeaders(t *testing.T) {
	l, pod, client := ends(t)
	for _, tc := range []struct {
		name          string
		v6, big       bool
		ratio, packet float64
	}{
		{"IPv4", false, false, 1514.0 / 1448, 1},
		{"IPv6", true, false, 1514.0 / 1428, 1},
		// A count that does not look behind the jumbo header is 5 % short.
		{"IPv6 BIG TCP", true, true, 1514.0 / 1428, 100_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.big {
				must.OK(t, l.AllowBigTCP(&pod.Host, client))
			}
			meters := attach(t, client)
			// A machine with other work sends small packets now and then.
			for packet, tries := 0.0, 0; packet < tc.packet; tries++ {
				if packet = carried(t, l, pod, client, meters, tc.v6, tc.ratio); tries == 4 && packet < tc.packet {
					t.Errorf("%.0f bytes in a packet, so BIG TCP was not tested", packet)
					break
				}
			}
		})
	}
}

// carried has a flow counted, and returns the mean size of its packets.
func carried(t *testing.T, l *lab.Lab, pod *lab.Pod, client *lab.Host, meters map[string]*wiremeter.Meter, v6 bool, ratio float64) (packet float64) {
	t.Helper()
	from := wiremeter.Now()
	run := must.Get(l.StartElephant(t.Context(), lab.Elephant{From: &pod.Host, To: client, IPv6: v6, Duration: time.Second, WriteBytes: 1 << 20}))(t)
	bulk := must.Get(run.Wait(t.Context()))(t)
	// The one has in addition what was still on its way at the end, the other lacks it.
	sent, received := lab.Between(bulk.Sent, 0, 2).Bytes, lab.Between(bulk.Received, 0, 2).Bytes
	for name, meter := range meters {
		got := read(t, meter, from)
		wire := float64(got.Total())
		if wire < ratio*received*0.99 || wire > ratio*sent*1.01 {
			t.Errorf("%s: wire bytes ÷ payload = %.4f of what was received and %.4f of what was sent, want %.4f", name, wire/received, wire/sent, ratio)
		}
		packet = wire / float64(got.Packets)
	}
	return packet
}
