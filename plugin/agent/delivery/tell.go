// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
)

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
