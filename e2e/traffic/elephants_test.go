// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// Under elephants a call of a tenth of the cap is heavy, and waits with the bulk flows beside
// it. It has less than its share, and loses nothing for what they have too much.
func TestPrivilegedCallBesideElephants(t *testing.T) {
	const (
		capacity = 10 * mbit
		share    = 0.1
		packet   = 1200
		last     = 6 * time.Second
	)
	for _, d := range Directions {
		t.Run(d.String(), func(t *testing.T) {
			if d == Ingress {
				mark.Nightly(t, "it differs from other cases by one setting")
			}
			beside(t, capacity)
			r := newRig(t)
			pod := shaped(t, r, capacity, map[string]any{"policy": "elephants"})
			bulk, err := pod.Start(t.Context(), d, Load{Name: "TCP 8 cubic", Flows: 8, Congestion: "cubic"}, capacity, last+2*settle)
			if err != nil {
				t.Fatal(err)
			}
			if err := wiremeter.Until(t.Context(), bulk.Started+settle); err != nil { // they are heavy then
				t.Fatal(err)
			}
			from, to := pod.Ends(d)
			call, err := r.Lab.StartCalls(t.Context(), lab.Calls{
				From: from, To: to, Flows: 1, PacketBytes: packet, Duration: last,
				PerSecond: share * capacity / 8 / (packet + 14),
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := call.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := bulk.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			all := got.Failed() + len(got.Samples)
			t.Logf("%d of %d packets of the call lost, median %v, p90 %v", got.Failed(), all, got.Quantile(0.5), got.Quantile(0.9))
			if got.Quantile(0.5) < 5*time.Millisecond {
				t.Errorf("median %v, want the call to wait with the bulk", got.Quantile(0.5))
			}
			// In a plain queue it loses 0.3 to 0.9 %.
			if most := all / 500; got.Failed() > most {
				t.Errorf("the call lost %d of %d packets, want at most %d", got.Failed(), all, most)
			}
		})
	}
}
