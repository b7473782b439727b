// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// mount puts a file system of its own over a directory, with what was in it.
func (h *host) mount(t *testing.T, dir, options string) {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(h.path(dir))
	must.OK(t, err)
	for _, e := range entries {
		files[e.Name()] = h.read(dir + "/" + e.Name())
	}
	must.OK(t, unix.Mount("tmpfs", h.path(dir), "tmpfs", 0, options))
	t.Cleanup(func() {
		if err := unix.Unmount(h.path(dir), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for name, content := range files {
		h.write(t, dir+"/"+name, content)
	}
}

// asNobody runs f on a thread without any privilege.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const keep, nobody = ^uintptr(0), 65534
	effective := func(uid uintptr) {
		// Of this thread alone: the saved id brings root back.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uid, keep); errno != 0 {
			t.Fatal(errno)
		}
	}
	effective(nobody)
	defer effective(0)
	f()
}

// refused installs and wants an error with these parts, and the node as it was.
func (h *host) refused(t *testing.T, m *delivery.Manager, parts ...string) {
	t.Helper()
	before := h.tree(t)
	steps, err := m.Install(t.Context())
	if err == nil {
		t.Fatalf("Install() = %v, want an error", steps)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want %q in it", err, part)
		}
	}
	if diff := cmp.Diff(before, h.tree(t)); diff != "" {
		t.Errorf("after the refusal (-before +after):\n%s", diff)
	}
	if h.shaped() {
		t.Error("podweir is in the chain")
	}
}

func TestPrivilegedReadOnly(t *testing.T) {
	testutil.RequireRoot(t)
	for _, dir := range []string{binDir, confDir} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			h := newHost(t, simple())
			h.mount(t, dir, "size=1m")
			must.OK(t, unix.Mount("", h.path(dir), "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=1m"))
			m := h.manager(t, nil)
			h.refused(t, m, h.path(dir), "read-only file system", "mounted writable")
			if d := m.Decision(); d.Delivery != profiles.NRI || !strings.Contains(d.Why, h.path(dir)) {
				t.Errorf("decision %+v, want nri because of %s", d, h.path(dir))
			}
			asked := h.manager(t, func(c *delivery.Config) { c.Delivery = profiles.Chain })
			h.refused(t, asked, "delivery", `"chain"`, h.path(dir), "read-only file system")
		})
	}
}

// TestPrivilegedFull has no room for the binary in the one directory, and for the
// copy of what was there in the other.
func TestPrivilegedFull(t *testing.T) {
	testutil.RequireRoot(t)
	big := strings.Repeat("x", 1<<20)
	for name, dir := range map[string]string{"plugins": binDir, "state": "var/lib"} {
		t.Run(name, func(t *testing.T) {
			files := simple()
			files[plugin] = big[:64<<10]
			h := newHost(t, files)
			must.OK(t, os.WriteFile(h.binary, []byte(big), 0o755))
			h.mount(t, dir, "size=96k")
			if name == "state" {
				h.write(t, dir+"/full", big[:80<<10])
			}
			h.refused(t, h.manager(t, nil), h.path(dir), "no space left", "free space")
		})
	}
}

// TestPrivilegedFullOverAnInstallation has no room for the conflist, after the new
// binary was put in place: what was installed before is there, whole.
func TestPrivilegedFullOverAnInstallation(t *testing.T) {
	testutil.RequireRoot(t)
	h := newHost(t, simple())
	h.mount(t, confDir, "size=32k")
	h.install(t, nil)
	h.write(t, confDir+"/full.tmp", "")
	for err := error(nil); err == nil; {
		var f *os.File
		if f, err = os.OpenFile(h.path(confDir+"/full.tmp"), os.O_APPEND|os.O_WRONLY, 0); err == nil {
			_, err = f.WriteString(strings.Repeat("x", 1<<10))
			err = errors.Join(err, f.Close())
		}
	}
	must.OK(t, os.WriteFile(h.binary, []byte("plugin, second release"), 0o755))
	before := h.tree(t)
	m := h.manager(t, func(c *delivery.Config) { c.Defaults = map[string]any{"policy": "flat"} })
	steps, err := m.Install(t.Context())
	if !errors.Is(err, unix.ENOSPC) || len(steps) > 0 {
		t.Errorf("Install() = %v, %v, want no space left, and no step", steps, err)
	}
	if diff := cmp.Diff(before, h.tree(t)); diff != "" {
		t.Errorf("after the failure (-before +after):\n%s", diff)
	}
	if !h.shaped() {
		t.Error("podweir is out of the chain")
	}
	h.remove(t, confDir+"/full.tmp")
	if _, err := m.Install(t.Context()); err != nil || h.read(plugin) != "plugin, second release" {
		t.Errorf("Install() with room = %v, binary %q", err, h.read(plugin))
	}
}

func TestPrivilegedNoPermission(t *testing.T) {
	testutil.RequireRoot(t)
	h := newHost(t, simple())
	for _, dir := range []string{filepath.Dir(h.root), filepath.Dir(h.binary), filepath.Dir(filepath.Dir(h.binary))} {
		must.OK(t, os.Chmod(dir, 0o755))
	}
	m := h.manager(t, nil)
	asNobody(t, func() { h.refused(t, m, h.path(confDir), "permission denied", "root") })
}

// TestPrivilegedWrongNodeKeepsRunning has the agent's part go on where nothing
// can be written, and install when that is over.
func TestPrivilegedWrongNodeKeepsRunning(t *testing.T) {
	testutil.RequireRoot(t)
	h := newHost(t, simple())
	h.mount(t, binDir, "size=1m")
	remount := func(flags uintptr) {
		must.OK(t, unix.Mount("", h.path(binDir), "", unix.MS_REMOUNT|flags, "size=1m"))
	}
	remount(unix.MS_RDONLY)
	m, _ := h.run(t, func(c *delivery.Config) { c.Delivery = profiles.Chain })
	h.eventually(t, "the problem is told", func() bool {
		return strings.Contains(m.Decision().Problem, h.path(binDir)+" cannot be written: read-only file system")
	})
	if got := h.chain(); len(got) != 2 {
		t.Errorf("chain %v, want that of the primary CNI", got)
	}
	remount(0)
	h.eventually(t, "podweir is in the chain", func() bool { return h.shaped() && m.Decision().Problem == "" })
}
