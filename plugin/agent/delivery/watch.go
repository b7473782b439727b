// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

const (
	// poll is how often the agent looks whether something changed in the directories. The kernel would tell sooner, but its
	// watches are few and shared with all that runs on the node: without one the agent would have to look all the same.
	poll = 200 * time.Millisecond
	// tick is how often the files are read although nothing seems to have changed.
	tick = time.Second
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
	swept := false
	for ctx.Err() == nil {
		// Before it is read: what changes in between is seen.
		before := m.stamps()
		p, err := m.pass(ctx, true, nil)
		if !swept && err == nil {
			swept = true
			m.sweep(p)
		}
		m.wait(ctx, before, p.wait)
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

func (m *Manager) sweep(p *pass) {
	dirs := []string{m.real(p.view.confDir), m.real(p.view.binDir), m.real(StateDir)}
	for _, network := range m.dropIns(p.view) {
		dirs = append(dirs, filepath.Join(dirs[0], network))
	}
	for _, dir := range dirs {
		if err := sweep(dir); err != nil {
			m.log.Warn("temporary files not removed", "error", err)
		}
	}
}

// stamps are those of the watched directories and of what is in them.
func (m *Manager) stamps() (all []stamp) {
	for _, dir := range m.watched() {
		all = append(all, stampOf(dir))
		entries, _ := os.ReadDir(dir) // one that is not there has nothing
		for _, e := range entries {
			all = append(all, stampOf(filepath.Join(dir, e.Name())))
		}
	}
	return all
}

// wait returns when something changed since before, at the next tick, after limit if that is
// not 0, and when ctx ends. It does not return at once: a step that fails, as on a full disk, may have changed the directory.
func (m *Manager) wait(ctx context.Context, before []stamp, limit time.Duration) {
	end := time.Now().Add(m.tick)
	if limit > 0 && limit < m.tick {
		end = time.Now().Add(limit)
	}
	for left := time.Until(end); left > 0; left = time.Until(end) {
		if sleep(ctx, min(left, poll)) != nil || !slices.Equal(before, m.stamps()) {
			return
		}
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
// name for a configuration. podweir's own look sees it, too: the next pass finds
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
