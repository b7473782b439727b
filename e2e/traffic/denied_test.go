// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"os/exec"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// Traffic that the node's policy denies passes the egress queue before it is dropped, so it uses
// up the pod's limit like any other. Into the pod it is dropped before the queue, and costs
// nothing. docs/explanation/how-a-packet-travels.md says both.
func TestPrivilegedDeniedTrafficAndTheLimit(t *testing.T) {
	mark.Nightly(t, "it measures what denied traffic costs, which no part of podweir decides")
	const capacity = 10 * mbit
	r := newRig(t)
	pod := shaped(t, r, capacity, nil)
	deny := exec.CommandContext(t.Context(), "nft", "add table inet deny; add chain inet deny f { type filter hook forward priority 0; }; "+
		"add rule inet deny f meta l4proto udp counter drop")
	if err := r.Lab.Node().Do(func() error { return deny.Run() }); err != nil {
		t.Fatalf("%v: %v", deny, err)
	}
	denied := UDP
	denied.Name, denied.Times = "UDP 3x, denied", 3
	for _, d := range Directions {
		carried := func(beside bool) float64 {
			const last = 5 * time.Second
			tcp, err := pod.Start(t.Context(), d, TCP1, capacity, last)
			if err != nil {
				t.Fatal(err)
			}
			if beside {
				flood, err := pod.Start(t.Context(), d, denied, capacity, last)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if _, _, err := flood.Wait(t.Context()); err != nil {
						t.Error(err)
					}
				}()
			}
			if _, _, err := tcp.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			series, err := pod.Wire(d, tcp.Started+time.Second, wiremeter.Now())
			if err != nil {
				t.Fatal(err)
			}
			return series.BitsPerSec() / mbit
		}
		alone, beside := carried(false), carried(true)
		t.Logf("%v: TCP alone %.2f Mbit/s, beside denied UDP of 3 times the limit %.2f", d, alone, beside)
		switch {
		case d == Egress && beside > 0.75*alone:
			t.Errorf("egress: %.2f of %.2f Mbit/s are left beside denied UDP: it is not charged any more, and the pages say that it is", beside, alone)
		case d == Ingress && beside < 0.8*alone:
			t.Errorf("ingress: %.2f of %.2f Mbit/s are left beside denied UDP, though policy drops that before the queue", beside, alone)
		}
	}
}
