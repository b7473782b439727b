// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

const (
	// tick is how often the files are looked at although nothing was heard of
	// them: a directory whose parent comes later is watched by nobody.
	tick = time.Second
	// blindTick is the same where the kernel gives no notice of changes, so that
	// a file that was rewritten is followed within a second all the same.
	blindTick = 250 * time.Millisecond
)

// Run installs podweir and follows the primary CNI until ctx ends, which is no
// error. Whatever ends it, the node stays as it is then: pods keep their limits,
// and new ones get theirs. What cannot be done is logged, told by
// [Config.OnDecision], and tried again; the node's own networking stays as it
// was.
//
// A second Run on the node waits for the first one to end.
func (m *Manager) Run(ctx context.Context) error {
	unlock, err := m.waitLock(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // it was told to end
		}
		return err
	}
	defer unlock()
	w := newWatcher(m.log, m.notify)
	w.tick, w.blindTick = m.tick, m.blindTick
	defer w.close()
	swept := false
	for ctx.Err() == nil {
		// Watched before it is read: what changes in between is heard.
		w.follow(m.watched())
		p, err := m.pass(ctx, true, nil)
		if !swept && err == nil {
			swept = true
			m.sweep(p)
		}
		if w.follow(m.watched()) {
			continue
		}
		w.wait(ctx, p.wait)
	}
	return nil
}

// watched are the directories in which something may happen that matters: that of
// the conflists and the one above it, since it may be replaced as a whole, that
// of the drop-ins, and that of the plugins.
func (m *Manager) watched() []string {
	if m.node == nil {
		return nil
	}
	conf := m.real("/" + m.node.ConfDir)
	out := []string{conf, filepath.Dir(conf)}
	m.mu.Lock()
	d := m.decision
	m.mu.Unlock()
	if d.Delivery == profiles.DropIn {
		if n := m.node.Conf.Network(); n != nil {
			out = append(out, filepath.Join(conf, n.Name))
		}
	}
	if d.BinDir != "" {
		out = append(out, m.real(d.BinDir))
	}
	return out
}

// sweep removes what a crash of podweir left half written.
func (m *Manager) sweep(p *pass) {
	dirs := []string{m.real(p.view.confDir), m.real(p.view.binDir), m.real(m.config.State)}
	for _, network := range m.dropIns(p.view) {
		dirs = append(dirs, filepath.Join(dirs[0], network))
	}
	for _, dir := range dirs {
		if err := sweep(dir); err != nil {
			m.log.Warn("temporary files not removed", "error", err)
		}
	}
}

// watcher tells that something changed in one of several directories.
type watcher struct {
	log     *slog.Logger
	notify  *fsnotify.Watcher
	changed chan struct{}
	seen    map[string]stamp
	// blind says that changes may go unheard.
	blind           bool
	tick, blindTick time.Duration
}

// newWatcher returns one that hears nothing if the kernel allows no more of
// them (fs.inotify.max_user_instances).
func newWatcher(log *slog.Logger, notify func() (*fsnotify.Watcher, error)) *watcher {
	w := &watcher{log: log, changed: make(chan struct{}, 1), seen: map[string]stamp{}, tick: tick, blindTick: blindTick}
	n, err := notify()
	if err != nil {
		w.goBlind(err)
		return w
	}
	w.notify = n
	go w.collect(n)
	return w
}

// collect makes one signal of any number of events. An error, such as an overflow
// of the kernel's queue, is a signal too.
func (w *watcher) collect(n *fsnotify.Watcher) {
	events, failures := n.Events, n.Errors
	for events != nil || failures != nil {
		select {
		case _, ok := <-events:
			if !ok {
				events = nil
			}
		case _, ok := <-failures:
			if !ok {
				failures = nil
			}
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

func (w *watcher) goBlind(err error) {
	if !w.blind {
		w.log.Warn("the kernel gives no notice of changed files, they are looked at instead", "every", blindTick.String(), "error", err)
	}
	w.blind = true
}

// follow watches these directories and no others, and says whether a watch is
// new: then what is in that directory has to be read again. A directory that was
// replaced is watched again, one that is missing when it is there.
func (w *watcher) follow(dirs []string) (fresh bool) {
	if w.notify == nil {
		return false
	}
	for dir := range w.seen {
		if !slices.Contains(dirs, dir) {
			_ = w.notify.Remove(dir)
			delete(w.seen, dir)
		}
	}
	for _, dir := range dirs {
		now := stampOf(dir)
		was, known := w.seen[dir]
		if known && was.device == now.device && was.inode == now.inode {
			continue
		}
		// It may be gone with its directory.
		_ = w.notify.Remove(dir)
		delete(w.seen, dir)
		if now == (stamp{}) {
			continue
		}
		if err := w.notify.Add(dir); err != nil {
			w.goBlind(err)
			continue
		}
		w.seen[dir] = now
		fresh = true
	}
	return fresh
}

// wait returns when something changed, at the next tick, after limit if that is
// not 0, and when ctx ends.
func (w *watcher) wait(ctx context.Context, limit time.Duration) {
	d := w.tick
	if w.blind {
		d = min(d, w.blindTick)
	}
	if limit > 0 {
		d = min(d, limit)
	}
	select {
	case <-ctx.Done():
	case <-w.changed:
	case <-time.After(d):
	}
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// tell makes the runtime read podweir's drop-in, or notice that it is gone. It does
// so after every change, and once when podweir starts: what an earlier podweir wrote
// may never have been read.
func (m *Manager) tell(p *pass) error {
	changed := slices.ContainsFunc(p.steps, func(s Step) bool { return isDropIn(s.Path) })
	if changed || p.upkeep == profiles.DropIn && !m.told {
		m.untold = true
	}
	if !m.untold || p.view.conf == nil {
		return nil
	}
	if err := m.nudge(p.view); err != nil {
		return err
	}
	m.told, m.untold = true, false
	return nil
}

func isDropIn(path string) bool { return filepath.Base(path) == conflist.DropInFile }

// nudge makes a file in the directory of conflists and removes it. containerd
// watches that directory and none below it, and reads everything again when a file
// there is written, renamed or removed; it ignores a directory or file that is made
// (internal/cri/server/cni_conf_syncer.go, v2.1 to v2.4). No CNI takes a file of this
// name for a configuration. podweir's own watch hears of it, too: the next pass finds
// nothing to do.
func (m *Manager) nudge(v *view) error {
	dir := m.real(v.confDir)
	f, err := os.CreateTemp(dir, tempPrefix+"*"+tempSuffix)
	if err != nil {
		return missingDir(filepath.Join(dir, tempPrefix+tempSuffix), err)
	}
	if err := errors.Join(f.Close(), remove(f.Name())); err != nil {
		return err
	}
	m.log.Info("container runtime told to read the drop-ins", "conflists", v.confDir)
	return nil
}
