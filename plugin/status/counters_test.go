// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/status/view"
)

// What the program drops comes before the queue, and is offered all the same; what the
// ceiling drops went past the program.
func TestCounters(t *testing.T) {
	t.Parallel()
	got := counters(&Direction{Counters: []datapath.Counter{
		{Disposition: "light", Packets: 1, Bytes: 100},
		{Disposition: "paced", Packets: 2, Bytes: 3000},
		{Disposition: "dropped-horizon", Packets: 3, Bytes: 4500},
		{Disposition: "dropped-ceiling", Packets: 5, Bytes: 7500},
	}})
	want := view.Counters{SentBytes: 3100, LightBytes: 100, HeavyBytes: 3000, DroppedBytes: 4500, Drops: 8}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}
