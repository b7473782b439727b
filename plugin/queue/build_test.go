// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A pfifo_fast below another qdisc has the length that its tree wants, whatever
// txqueuelen the device had.
func TestPrivilegedBuildBandLength(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	for name, txQueueLen := range map[string]int{"usual device": 1000, "device without a queue": 0} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			must.OK(t, d.Handle.SetTxQueueLen(d.index, txQueueLen))
			tree := bandTree(12_500, 9_200)
			tree.Qdiscs[1].PacketLimit = 16
			d.build(t, tree, testutil.Program{FD: -1})
			send(t, d, 100, 1400)
			// 6 packets leave with the bucket and one every 0.1 s by the clock:
			// on a slow machine some do between the last packet and the look.
			if s := d.observe(t).Root().Stats; s.BacklogPackets < 13 || s.BacklogPackets > 16 || s.Drops < 60 {
				t.Errorf("%d packets wait and %d were dropped, want 16 waiting, or a few less, and the rest dropped",
					s.BacklogPackets, s.Drops)
			}
		})
	}
}
