// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
)

// An agent that was killed leaves its record, the pods of which end.
func TestUnenforcedOfWhatIsGone(t *testing.T) {
	t.Parallel()
	paths := engine.Paths{Run: t.TempDir()}
	there, gone := attach.ID{Network: "n", ContainerID: "1", IfName: "eth0"}, attach.ID{Network: "n", ContainerID: "2", IfName: "eth0"}
	paths.RecordUnenforced(slog.New(slog.DiscardHandler), []engine.Unenforced{{ID: gone}, {ID: there}, {ID: gone}})
	all, err := paths.Unenforced()
	if err != nil || len(all) != 3 {
		t.Fatalf("record = %+v, %v, want all three", all, err)
	}
	if diff := cmp.Diff([]engine.Unenforced{{ID: there}}, engine.StillAttached(all, []attach.ID{there})); diff != "" {
		t.Error(diff)
	}
}
