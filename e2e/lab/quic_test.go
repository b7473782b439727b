// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// sent is a flow with so many packets under way, the first of number 0, sent at 0.
func sent(window float64, packets int) *quicFlow {
	f := &quicFlow{window: window, threshold: 1e9}
	for range packets {
		f.under = append(f.under, quicPacket{number: f.next})
		f.next++
		f.flying++
	}
	return f
}

// TestQUICBacksOff: the window is halved for the first loss of a round trip, and not for others of
// the same; before a loss it doubles in a round trip, and later it grows by a packet.
func TestQUICBacksOff(t *testing.T) {
	const roundTrip = 10 * time.Millisecond
	f := sent(20, 20)
	f.arrived(0, roundTrip)
	f.arrived(1, roundTrip)
	if f.window != 22 || f.flying != 18 || f.roundTrip != roundTrip {
		t.Errorf("two packets arrived: %+v, want a window of 22 and 18 under way", f)
	}
	f.arrived(4, roundTrip)
	if f.flying != 17 || f.window != 23 {
		t.Errorf("2 and 3 may still come: %+v, want 17 under way and no loss", f)
	}
	f.arrived(5, roundTrip)
	f.arrived(6, roundTrip)
	if f.window != 12 || f.cut != 20 {
		t.Errorf("2 and 3 are lost: %+v, want half of the window, once", f)
	}
	cut := f.window
	for n := uint64(9); n < 20; n++ {
		f.arrived(n, roundTrip)
	}
	if f.window != cut || f.flying != 0 || len(f.under) != 0 {
		t.Errorf("7 and 8 are lost in the same round trip: %+v, want a window of %g and nothing under way", f, cut)
	}
	if h := f.half(roundTrip); h.arrived != 16 || h.lost != 4 {
		t.Errorf("%d arrived and %d were lost, want 16 and 4", h.arrived, h.lost)
	}
	more := sent(cut, 12)
	f.under, f.next, f.flying = more.under, 32, 12
	for i := range f.under {
		f.under[i].number += 20
	}
	for n := uint64(20); n < 32; n++ {
		f.arrived(n, 2*roundTrip)
	}
	if f.window < cut+0.9 || f.window > cut+1.1 {
		t.Errorf("a round trip later the window is %g, want one more than %g", f.window, cut)
	}
}

// TestPrivilegedQUICHasTheCap: such a flow has what the reference plugin lets through, loses something, and is reported
// until it is stopped.
func TestPrivilegedQUICHasTheCap(t *testing.T) {
	mark.Timed(t, "it judges rates or waits")
	l := newTestLab(t)
	network, err := l.Network("net", BandwidthEntry())
	must.OK(t, err)
	pod, err := network.Pod(t.Context(), PodOptions{Bandwidth: &Bandwidth{EgressRate: 20e6, EgressBurst: 64_000 * 8}})
	must.OK(t, err)
	client, err := l.Client("client")
	must.OK(t, err)
	run, err := l.StartElephant(t.Context(), Elephant{
		From: &pod.Host, To: client, Flows: 2, CongestionControl: QUIC, Duration: time.Minute,
	})
	must.OK(t, err)
	const last = 4 * time.Second
	must.OK(t, wiremeter.Until(t.Context(), run.Started+last))
	bulk, err := run.Stop(t.Context())
	must.OK(t, err)
	w := Between(bulk.Received, 1, last.Seconds())
	if rate := w.BitsPerSec(); rate < 15e6 || rate > 20e6 || w.Retransmits == 0 || w.Retransmits > w.Bytes/quicPayload/4 {
		t.Errorf("%.1f Mbit/s, %.0f of %.0f packets lost; want almost 20, and some but few", rate/1e6, w.Retransmits, w.Bytes/quicPayload)
	}
}
