// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A kept connection does not notice the bulk flow beside it. Judged against
// the reference plugin and the unlimited pod in the same run; the numbers for
// a quiet machine are those of make bench.
func TestPrivilegedKeptConnectionDoesNotWaitBesideBulk(t *testing.T) {
	for _, d := range Directions {
		t.Run(d.String(), func(t *testing.T) {
			beside(t, 100*mbit)
			r := newRig(t)
			ref := must.Get(r.Reference(t.Context(), 100*mbit, lab.RuntimeBurst))(t)
			t.Cleanup(func() { _ = ref.closeMeters() })
			var of [2]*Kept
			var errs [2]error
			var both sync.WaitGroup
			for i, p := range []*Target{ref, shaped(t, newRig(t), 100*mbit, nil)} {
				both.Go(func() { of[i], errs[i] = p.KeptBeside(t.Context(), d, TCP1, 100*mbit, 3, time.Second) })
			}
			both.Wait()
			must.OK(t, errors.Join(errs[:]...))
			want, got := of[0], of[1]
			t.Logf("p50, p99: podweir %v %v, bystander %v %v, reference plugin %v %v",
				got.Pod.Quantile(0.5), got.Pod.Quantile(0.99),
				got.Bystander.Quantile(0.5), got.Bystander.Quantile(0.99),
				want.Pod.Quantile(0.5), want.Pod.Quantile(0.99))
			must.Be(t, "requests without a response, "+got.Pod.Reason, 0, got.Pod.Failed)
			if a, b := got.Pod.Quantile(0.5), want.Pod.Quantile(0.5); a*20 > b {
				t.Errorf("median %v, more than 0.05 of the reference plugin's %v", a, b)
			}
			if a, b := got.Pod.Quantile(0.5), got.Bystander.Quantile(0.5); a > 2*b {
				t.Errorf("median %v, more than twice the bystander's %v", a, b)
			}
		})
	}
}

// Light flows do not wait, and lose nothing, beside a flood of twice the cap.
func TestPrivilegedLightFlowsPassAFlood(t *testing.T) {
	const capacity = 20 * mbit
	for _, tt := range []struct {
		direction Direction
		flood     Load
	}{{Egress, UDP}, {Ingress, UDP}, {Egress, Discovery}, {Ingress, Discovery}} {
		t.Run(fmt.Sprintf("%v/%s", tt.direction, tt.flood.Name), func(t *testing.T) {
			beside(t, capacity)
			pod := shaped(t, newRig(t), capacity, nil)
			got := must.Get(pod.KeptBeside(t.Context(), tt.direction, tt.flood, capacity, 2, time.Second))(t)
			t.Logf("p50, p99: podweir %v %v, bystander %v %v",
				got.Pod.Quantile(0.5), got.Pod.Quantile(0.99),
				got.Bystander.Quantile(0.5), got.Bystander.Quantile(0.99))
			must.Be(t, "requests without a response, "+got.Pod.Reason, 0, got.Pod.Failed)
			// One packet in front of it takes 0.6 ms at this cap; what waits
			// in the heavy band takes 50 ms.
			if a, b := got.Pod.Quantile(0.5), got.Bystander.Quantile(0.5); a > 2*b+time.Millisecond {
				t.Errorf("median %v, bystander %v", a, b)
			}
		})
	}
}

// A flow that turns heavy and light again never overtakes itself.
func TestPrivilegedAFlowDoesNotOvertakeItself(t *testing.T) {
	const capacity = 10 * mbit
	for _, d := range Directions {
		t.Run(d.String(), func(t *testing.T) {
			beside(t, capacity)
			r := newRig(t)
			pod := shaped(t, r, capacity, nil)
			for range 3 {
				got := must.Get(pod.OrderBesideLight(t.Context(), d, capacity))(t)
				t.Logf("%+v", *got)
				if got.Received < got.Sent/2 || got.Inversions != 0 {
					t.Errorf("%d of %d datagrams came, %d out of order, the first of them %v, want none",
						got.Received, got.Sent, got.Inversions, got.Overtaken)
				}
			}
			free := must.Get(r.Free.OrderBesideLight(t.Context(), d, capacity))(t)
			if free.Missing != 0 || free.Inversions != 0 {
				t.Errorf("the unlimited pod: %+v, want all in order", *free)
			}
		})
	}
}

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
	)
	pod := shaped(t, r, capacity, map[string]any{})
	from, to := pod.Ends(d)
	bulk := must.Get(r.Lab.StartElephant(t.Context(), lab.Elephant{From: from, To: to, CongestionControl: congestion, Flows: flows, Duration: last}))(t)
	flood := must.Get(r.Lab.StartFlood(t.Context(), lab.UDPFlood{
		From: from, To: to, BitsPerSec: uint64(offered * float64(capacity)), PayloadBytes: fullPayload, Duration: last,
	}))(t)
	started := wiremeter.Now()
	must.OK(t, must.Err(flood.Wait(t.Context())))
	got := must.Get(bulk.Wait(t.Context()))(t)
	onWire := 1 + float64(got.HeadBytes)/float64(got.MSS)
	wire := must.Get(pod.Wire(d, started+begin, started+last-time.Second/2))(t)
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
	if seconds == 0 {
		t.Fatalf("nothing is known of what arrived after %v", begin)
	}
	out.udp = wire.BitsPerSec() / float64(capacity)
	for i := range out.tcp {
		out.tcp[i] /= seconds
		out.udp -= out.tcp[i]
	}
	return out
}

// TCP and QUIC, which slow down, keep a part of the limit beside UDP, which does not, out of a pod and into it.
func TestPrivilegedTCPKeepsItsShareBesideUDP(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		capacity   uint64
		congestion string
		flows      int
		// tcp is what each flow shall have at least, udp what UDP may have at most.
		tcp, udp float64
	}{
		{10 * mbit, "cubic", 1, 0.4, 1},
		{100 * mbit, "cubic", 1, 0.4, 1},
		{10 * mbit, "cubic", 4, 0.15, 0.35},
		{100 * mbit, "cubic", 4, 0.15, 0.35},
		// With a queue of the full length BBR has 0.07 to 0.10 of the limit into the pod and 0.33 to 0.43 out of it.
		{100 * mbit, "bbr", 1, 0.4, 1},
		// It has 0.55 out of the pod, and 0.46 if the queue is no shorter beside such a sender.
		{100 * mbit, lab.QUIC, 1, 0.5, 1},
	} {
		for _, d := range Directions {
			if tt.congestion == lab.QUIC && d == Ingress {
				continue // 0.44 to 0.46, and 0.39 in the same way: too near to judge
			}
			t.Run(fmt.Sprintf("%dM/%v/%d %s", tt.capacity/mbit, d, tt.flows, tt.congestion), func(t *testing.T) {
				if tt.flows > 1 && d == Ingress || tt.congestion == "bbr" && d == Egress {
					mark.Nightly(t, "one flow decides into a pod, and many out of it")
				}
				if tt.congestion == lab.QUIC {
					mark.Nightly(t, "a machine with other work is enough to miss the bar; BBR shows the same")
				}
				offered := 1.2
				if tt.capacity > 10*mbit {
					offered = 1.5
				}
				got := besideUDP(t, r, d, tt.capacity, tt.flows, tt.congestion, offered)
				t.Log(got)
				if least := slices.Min(got.tcp); least < tt.tcp || got.udp > tt.udp {
					t.Errorf("a flow has %.2f of the cap and UDP %.2f, want at least %.2f and at most %.2f", least, got.udp, tt.tcp, tt.udp)
				}
			})
		}
	}
}
