// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// shares are what flows of TCP and a UDP sender beside them get, as parts of the cap on the wire.
type shares struct {
	tcp []float64
	udp float64
}

func (s *shares) String() string {
	all := make([]string, len(s.tcp))
	for i, f := range s.tcp {
		all[i] = fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("TCP %s, UDP %.2f", strings.Join(all, " "), s.udp)
}

// besideUDP measures them after the first two seconds. UDP offers so much of the cap, and never slows down.
func besideUDP(t *testing.T, r *Rig, d Direction, capacity uint64, flows int, congestion string, offered float64) *shares {
	t.Helper()
	const (
		begin = 2 * time.Second
		last  = 6 * time.Second
		// onWire is a full frame in bytes of its payload.
		onWire = 1514. / 1448
	)
	pod := shaped(t, r, capacity, map[string]any{})
	from, to := pod.Ends(d)
	bulk, err := r.Lab.StartElephant(t.Context(), lab.Elephant{From: from, To: to, CongestionControl: congestion, Flows: flows, Duration: last})
	if err != nil {
		t.Fatal(err)
	}
	flood, err := r.Lab.StartFlood(t.Context(), lab.UDPFlood{
		From: from, To: to, BitsPerSec: uint64(offered * float64(capacity)), PayloadBytes: fullPayload, Duration: last,
	})
	if err != nil {
		t.Fatal(err)
	}
	started := wiremeter.Now()
	if _, err := flood.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := bulk.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wire, err := pod.Wire(d, started+begin, started+last-time.Second/2)
	if err != nil {
		t.Fatal(err)
	}
	out, seconds := &shares{tcp: make([]float64, flows)}, 0.
	for _, one := range got.Received {
		if one.Start < begin.Seconds() || one.End > last.Seconds() {
			continue
		}
		seconds += one.End - one.Start
		for i, bytes := range one.Flows {
			out.tcp[i] += bytes * 8 * onWire / float64(capacity)
		}
	}
	out.udp = wire.BitsPerSec() / float64(capacity)
	for i := range out.tcp {
		out.tcp[i] /= seconds
		out.udp -= out.tcp[i]
	}
	return out
}

// TCP beside a sender that does not slow down is a heavy flow like that one, out of a pod and into it.
func TestPrivilegedTCPKeepsItsShareBesideUDP(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		capacity uint64
		offered  float64
		flows    int
		// tcp is what each flow shall have at least, udp what UDP may have at most.
		tcp, udp float64
	}{
		{10 * mbit, 1.2, 1, 0.4, 1},
		{100 * mbit, 1.5, 1, 0.4, 1},
		{10 * mbit, 1.2, 4, 0.15, 0.35},
		{100 * mbit, 1.5, 4, 0.15, 0.35},
	} {
		for _, d := range Directions {
			t.Run(fmt.Sprintf("%dM/%v/%d flows", tt.capacity/mbit, d, tt.flows), func(t *testing.T) {
				if tt.flows > 1 && d == Ingress {
					mark.Nightly(t, "one flow decides there")
				}
				got := besideUDP(t, r, d, tt.capacity, tt.flows, "cubic", tt.offered)
				t.Log(got)
				if least := slices.Min(got.tcp); least < tt.tcp || got.udp > tt.udp {
					t.Errorf("a flow of TCP has %.2f of the cap and UDP %.2f, want at least %.2f and at most %.2f", least, got.udp, tt.tcp, tt.udp)
				}
			})
		}
	}
}
