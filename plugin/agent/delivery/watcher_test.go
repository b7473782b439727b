// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Look has a manager read the files every so often, although nothing seems to have changed.
func (m *Manager) Look(every time.Duration) { m.tick = every }

// TestSeesChanges looks without the tick, which would hide from other tests that a change is not seen.
func TestSeesChanges(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"a new file":              func(dir string) error { return os.WriteFile(filepath.Join(dir, "y"), nil, 0o600) },
		"a file is written":       func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), []byte("x"), 0o600) },
		"a file goes":             func(dir string) error { return os.Remove(filepath.Join(dir, "x")) },
		"a file changes its mode": func(dir string) error { return os.Chmod(filepath.Join(dir, "x"), 0o400) },
		"another directory": func(dir string) error {
			if err := os.Rename(dir, dir+".old"); err != nil {
				return err
			}
			return os.Mkdir(dir, 0o700)
		},
		"the directory goes": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &Manager{tick: time.Hour, node: &detect.Node{ConfDir: "net.d"}, config: Config{Root: t.TempDir()}}
				dir := filepath.Join(m.config.Root, "net.d")
				must.OK(t, os.Mkdir(dir, 0o700))
				must.OK(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
				before, began := m.stamps(), time.Now()
				m.wait(t.Context(), before, 0)
				must.Be(t, "time until it looks with nothing changed", m.tick, time.Since(began))
				began = time.Now()
				m.wait(t.Context(), before, time.Minute)
				must.Be(t, "time until it looks because it is asked to", time.Minute, time.Since(began))
				changed := make(chan error, 1)
				time.AfterFunc(10*poll+time.Millisecond, func() { changed <- change(dir) })
				began = time.Now()
				m.wait(t.Context(), before, 0)
				must.OK(t, <-changed)
				must.Be(t, "time until it looks after a change", 11*poll, time.Since(began))
				began = time.Now()
				m.wait(t.Context(), before, 0)
				must.Be(t, "time until it looks again after a change of its own", poll, time.Since(began))
			})
		})
	}
}
