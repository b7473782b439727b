// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/testutil"
)

// A pod's watch that failed begins again with the next look, though that finds the same
// interfaces.
func TestPrivilegedFailedWatchBeginsAgain(t *testing.T) {
	testutil.RequireRoot(t)
	ns := testutil.NewNetNS(t)
	path := filepath.Join(t.TempDir(), "netns")
	w := New(Config{Log: slog.New(slog.DiscardHandler)}).watch
	k := key{uid: "pod"}
	list := []watched{{iface: attach.Interface{PodIndex: ns.Interface(t, "lo").Index, NetNSPath: path, NetNSInode: ns.Inode()}}}
	defer w.wg.Wait()
	defer w.set(t.Context(), k, nil)
	w.set(t.Context(), k, list)
	testutil.Eventually(t, 10*time.Second, "the watch has failed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.pods[k].failed
	})
	if err := os.Symlink(ns.Path(), path); err != nil {
		t.Fatal(err)
	}
	w.set(t.Context(), k, list)
	testutil.Eventually(t, 10*time.Second, "a change is noticed", func() bool {
		ns.Run(t, "tc", "qdisc", "replace", "dev", "lo", "root", "pfifo")
		ns.Run(t, "tc", "qdisc", "del", "dev", "lo", "root")
		taken, _, ok := w.r.queue.take()
		return ok && taken == k
	})
}
