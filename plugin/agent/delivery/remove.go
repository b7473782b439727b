// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/podweir/podweir/compat/conflist"
)

// Remove takes podweir out of the set-up of pods and removes its files from the
// node's directories. What [Manager.Install] or [Manager.Run] replaced does not
// come back. Done twice it changes nothing. Pods that run keep their limits:
// that is not a matter of files.
//
// An error that wraps [ErrInUse] says that podweir's binary stays, with its
// record, because another party's configuration names it: without it pods would
// fail. Remove again once that is over. With [ErrCalled] nothing was removed. [ErrRunning] says that an agent would put
// everything back.
func (m *Manager) Remove(ctx context.Context) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := m.removable(ctx)
	if err != nil {
		return err
	}
	if err := m.removeFiles(ctx, v, "podweir is removed"); err != nil {
		return err
	}
	m.publish(Decision{
		Asked: m.config.Delivery, ConfDir: v.confDir, BinDir: v.binDir, Runtime: v.node.Runtime.String(),
		Choice: conflist.Choice{Why: "podweir was removed"},
	}, true)
	return nil
}

// removeFiles removes every file of podweir's. The binary goes after a pause: a runtime that has read the chain calls it once the primary
// CNI's ADD is done, and CRI-O notes only then that it needs it for DEL.
func (m *Manager) removeFiles(ctx context.Context, v *view, why string) error {
	r, err := m.loadRecord()
	if err != nil {
		return err
	}
	if v.conf != nil {
		m.sweep(&pass{view: v})
		if err := m.removeConfigurations(ctx, v, r, why); err != nil {
			return errors.Join(err, r.close())
		}
	}
	if err := m.stillNamed(v); err != nil {
		return errors.Join(err, r.close())
	}
	if err := m.removeBinaries(r, why); err != nil {
		return err
	}
	clear(m.placed)
	m.noted = false
	return r.close()
}

// removeConfigurations removes podweir's conflist and drop-ins, and what became of them.
func (m *Manager) removeConfigurations(ctx context.Context, v *view, r *record, why string) error {
	for _, f := range v.conf.Own() {
		if path := filepath.Join(m.real(v.confDir), f.Name); r.find(path) == nil && !machineMade(&f) {
			m.log.Warn("left: podweir has no record of having made it", "path", path)
		}
	}
	for {
		steps, _ := m.planRemove(v, r, why)
		for _, s := range steps {
			if err := remove(s.Path); err != nil {
				return err
			}
			m.log.Info("files of podweir changed", "do", doRemove, "path", s.Path, "why", why)
		}
		if len(steps) == 0 {
			break
		}
		if slices.ContainsFunc(steps, func(s Step) bool { return isDropIn(s.Path) }) {
			// Before the binary goes: a runtime that still has the drop-in would fail
			// every pod for the lack of it.
			if err := m.nudge(v); err != nil {
				return err
			}
		}
		// Another installer may write again what it had read before: the next look finds that.
		if err := sleep(ctx, settle); err != nil {
			return err
		}
		var err error
		if v.conf, err = v.node.ReadConf(m.root); err != nil && !isMissing(err) {
			return err
		}
	}
	r.Items = slices.DeleteFunc(r.Items, func(i *item) bool { return !i.Directory && !i.binary() })
	return nil
}

// heldBy returns an [ErrCalled] if plugins of another party call a file of podweir's by
// themselves: without it, as without the binary, no pod would start. Multus takes the first
// file of the directory, and keeps to its name until its daemon starts again
// (pkg/server/config, v4.2).
func (m *Manager) heldBy(v *view, then string) error {
	names := m.called(v)
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s calls %s by itself, with what was in it at the last change; have it call the file that this one was made from "+
		"(Multus: multusMasterCNI or --multus-master-cni-file-name), %s", ErrCalled, v.conf.Network().File, names[0], then)
}

// removable looks at the node, and returns an [ErrCalled] if podweir cannot be removed.
func (m *Manager) removable(ctx context.Context) (*view, error) {
	m.detect(ctx, nil)
	v, err := m.look(ctx)
	if err == nil {
		err = m.heldBy(v, "then run podweir uninstall again")
	}
	return v, err
}

// called are the files of podweir's that plugins of another party call by themselves.
func (m *Manager) called(v *view) (names []string) {
	n := v.conf.Network()
	if n == nil {
		return nil
	}
	_, names = n.Calls()
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(v.conf.Own(), func(f conflist.File) bool { return f.Name == name })
	})
}

// stillNamed returns an error that wraps [ErrInUse] if pods need the binary
// although podweir's own files are gone.
func (m *Manager) stillNamed(v *view) error {
	conf, err := v.node.ReadConf(m.root)
	if err != nil && !isMissing(err) {
		return err
	}
	if conf != nil {
		entry, name := false, ""
		if n := conf.Network(); n != nil {
			entry, _ = n.Calls()
			name = n.File
			for _, c := range conf.DropIns[n.Name] {
				if c.Type == conflist.Type && v.readsDropIns() {
					entry, name = true, filepath.Join(n.Name, c.Name)
				}
			}
		}
		if entry {
			why := fmt.Sprintf("%s names it", filepath.Join(m.real(v.confDir), name))
			if p := v.node.Profile; p != nil && len(p.Conflist.HandedDo) > 0 {
				why += "; take podweir out of the chain that " + p.Title + " was given (cni.configMap)"
			}
			return fmt.Errorf("%w: %s", ErrInUse, why)
		}
	}
	return m.cached(v)
}

// libcniCache is where libcni keeps the configuration that each container was
// made with (libcni/api.go, CacheDir).
const libcniCache = "/var/lib/cni/results"

// cached looks for containers whose DEL will call the binary: CRI-O takes the
// configuration for it from libcni's cache, and cannot stop a pod whose plugin is
// gone. containerd takes the one in force.
func (m *Manager) cached(v *view) error {
	if v.node.Runtime.Name != "cri-o" {
		return nil
	}
	dir := m.real(libcniCache)
	entries, err := os.ReadDir(dir)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return fileError("list", dir, err)
	}
	n := 0
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // it went with its container
		}
		var entry struct {
			Config []byte `json:"config"`
		}
		if json.Unmarshal(raw, &entry) != nil {
			continue
		}
		if network, err := conflist.Parse("x.conflist", entry.Config); err == nil && network.Index(conflist.Type) >= 0 {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: CRI-O calls it when it stops %d containers that were made with it; uninstall again when they are gone", ErrInUse, n)
}

// removeBinaries removes podweir's binary where it is still the one that podweir
// put there.
func (m *Manager) removeBinaries(r *record, why string) error {
	for _, i := range slices.Clone(r.Items) {
		if !i.binary() {
			continue
		}
		path := r.at(i)
		hash, err := hashFile(path)
		switch {
		case isMissing(err):
		case err != nil:
			return fileError("read", path, err)
		case !slices.Contains(i.SHA256, hash):
			m.log.Warn("left: another party replaced podweir's binary", "path", path)
			r.forget(i)
			continue
		}
		if err := remove(path); err != nil {
			return err
		}
		r.forget(i)
		m.log.Info("files of podweir changed", "do", doRemove, "path", path, "why", why)
	}
	return nil
}

// PlanRemove returns the steps that [Manager.Remove] would take, or [ErrCalled]. It writes
// nothing.
func (m *Manager) PlanRemove(ctx context.Context) ([]Step, error) {
	if !m.busy.TryLock() {
		return nil, ErrRunning
	}
	defer m.busy.Unlock()
	v, err := m.removable(ctx)
	if err != nil {
		return nil, err
	}
	r, err := m.loadRecord()
	if err != nil {
		return nil, err
	}
	configurations, rest := m.planRemove(v, r, "podweir is removed")
	return append(configurations, rest...), nil
}

// planRemove lists podweir's files on the node: those that the runtime reads, and the rest.
func (m *Manager) planRemove(v *view, r *record, why string) (configurations, rest []Step) {
	for _, i := range r.Items {
		s := Step{Do: doRemove, Path: r.at(i), Why: why}
		if _, err := os.Lstat(s.Path); isMissing(err) {
			continue
		}
		if i.Directory || i.binary() {
			rest = append(rest, s)
		} else {
			configurations = append(configurations, s)
		}
	}
	if v.conf == nil {
		return configurations, rest
	}
	others := m.renamed(v)
	for _, f := range v.conf.Own() {
		if machineMade(&f) {
			others = append(others, filepath.Join(m.real(v.confDir), f.Name))
		}
	}
	for _, path := range others {
		if r.find(path) == nil {
			configurations = append(configurations, Step{Do: doRemove, Path: path, Why: why})
		}
	}
	return configurations, rest
}
