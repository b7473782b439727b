// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// heard says whether a change is told before long.
func (w *watcher) heard() bool {
	select {
	case <-w.changed:
		return true
	case <-time.After(5 * time.Second):
		return false
	}
}

// TestFollow watches what has a name, not what had it: the tick that stands
// behind the watch would hide it from the other tests.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	touch := func() {
		t.Helper()
		must.OK(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	}
	w := newWatcher(slog.New(slog.DiscardHandler), fsnotify.NewWatcher)
	defer w.close()
	must.Be(t, "a directory that is not there is watched", false, w.follow([]string{dir}))
	must.OK(t, os.Mkdir(dir, 0o700))
	must.Be(t, "follow() is new at the first call", true, w.follow([]string{dir}))
	must.Be(t, "follow() is new at the second", false, w.follow([]string{dir}))
	touch()
	must.Be(t, "a new file is heard of", true, w.heard())
	must.OK(t, os.Rename(dir, dir+".old"))
	must.OK(t, os.Mkdir(dir, 0o700))
	must.Be(t, "the directory that took the place is watched", true, w.follow([]string{dir}))
	for len(w.changed) > 0 {
		<-w.changed
	}
	touch()
	must.Be(t, "a new file in the directory that took the place is heard of", true, w.heard())
	if w.follow(nil); len(w.seen) != 0 {
		t.Errorf("%v are watched, want none", w.seen)
	}
}

// Blind keeps notice of changed files from a manager, as the kernel does that has no more
// of them to give.
func (m *Manager) Blind() {
	m.notify = func() (*fsnotify.Watcher, error) { return nil, os.ErrPermission }
}

// Look has a manager look at the files every so often, although nothing was heard of them,
// or can be heard.
func (m *Manager) Look(every time.Duration) { m.tick, m.blindTick = every, every }

// TestBlind looks often where the kernel gives no notice.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Manager{}
		m.Blind()
		w := newWatcher(slog.New(slog.DiscardHandler), m.notify)
		if w.follow([]string{t.TempDir()}) || !w.blind {
			t.Error("a watcher without notice says that it watches")
		}
		began := time.Now()
		w.wait(t.Context(), 0)
		must.Be(t, "time until it looks", blindTick, time.Since(began))
	})
}
