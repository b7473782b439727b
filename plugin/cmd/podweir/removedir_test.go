// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
)

// In the chart's container podweir's directory is a mount in a root that is
// read-only: what is in it goes, and that it stays is no error.
func TestPrivilegedRemoveDirOfReadOnlyRoot(t *testing.T) {
	testutil.RequireRoot(t)
	root := t.TempDir()
	dir := filepath.Join(root, "podweir")
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatalf("mount %s: %v", target, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	mount("tmpfs", root, "tmpfs", 0)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mount("tmpfs", dir, "tmpfs", 0)
	if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(dir, "failures", "x.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(record), 0o755), os.WriteFile(record, []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	paths := engine.Paths{Run: dir, Pins: filepath.Join(root, "none")}
	if err := unlessMounted(paths, removeDir("remove", dir)); err != nil {
		t.Errorf("remove: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left (%v), want an empty directory", left, err)
	}
	if err := removeDir("remove", paths.Pins); err != nil {
		t.Errorf("remove what is not there: %v", err)
	}
}
