// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A pod may end after the agent looked. What it recorded is known while it looks: one that
// was killed leaves its record.
func TestUnenforcedOfWhatIsGone(t *testing.T) {
	t.Parallel()
	paths := engine.Paths{Run: t.TempDir()}
	must.OK(t, paths.RecordReached(nil))
	there, gone := attach.ID{Network: "n", ContainerID: "1", IfName: "eth0"}, attach.ID{Network: "n", ContainerID: "2", IfName: "eth0"}
	paths.RecordUnenforced(slog.New(slog.DiscardHandler), []engine.Unenforced{{ID: gone}, {ID: there}, {ID: gone}})
	all, err := paths.Unenforced()
	if err != nil || len(all) != 3 {
		t.Fatalf("record = %+v, %v, want all three", all, err)
	}
	if diff := cmp.Diff([]engine.Unenforced{{ID: there}}, engine.StillAttached(all, []attach.ID{there})); diff != "" {
		t.Error(diff)
	}
	before := time.Now().Add(-time.Minute)
	must.OK(t, os.Chtimes(filepath.Join(paths.Run, "reached.json"), before, before))
	if all, err := paths.Unenforced(); err != nil || len(all) != 0 {
		t.Errorf("a minute after the agent looked: record = %+v, %v, want none", all, err)
	}
}
