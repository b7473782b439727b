// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModuleFiles(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{
		"modules.dep":     "kernel/fs/fuse.ko:\nkernel/fs/virtiofs.ko: kernel/fs/fuse.ko kernel/virtio.ko\nkernel/virtio.ko:\nkernel/fs/over-lay.ko: kernel/fs/fuse.ko\n",
		"modules.builtin": "kernel/virtio_pci.ko\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := moduleFiles(dir, []string{"virtio_pci", "virtiofs", "over_lay"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kernel/virtio.ko", "kernel/fs/fuse.ko", "kernel/fs/virtiofs.ko", "kernel/fs/over-lay.ko"}
	for i := range got {
		got[i] = strings.TrimPrefix(got[i], dir+"/")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("moduleFiles() mismatch (-want +got):\n%s", diff)
	}
	if _, err := moduleFiles(dir, []string{"nothing"}); err == nil {
		t.Error("moduleFiles() of a module that is not there = nil, want an error")
	}
}

// cpio(1), where it is installed, reads what is written.
func TestCpio(t *testing.T) {
	var archive bytes.Buffer
	c := &cpio{w: bufio.NewWriter(&archive)}
	c.add("dev", cpioDir, nil)
	c.add("init", cpioFile, []byte("hello"))
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if archive.Len()%4 != 0 || !bytes.HasPrefix(archive.Bytes(), []byte("070701")) {
		t.Errorf("the archive has %d bytes and begins with %.6q", archive.Len(), archive.Bytes())
	}
	if _, err := exec.LookPath("cpio"); err != nil {
		return
	}
	cmd := exec.CommandContext(t.Context(), "cpio", "-it", "--quiet")
	cmd.Stdin = &archive
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "dev\ninit\n" {
		t.Errorf("cpio lists %q, %v", out, err)
	}
}

func TestComplaints(t *testing.T) {
	console := "[    1.0] quiet\n[    2.0] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1\n[    3.0] Kernel panic - not syncing: x\n"
	want := []string{"[    2.0] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1", "[    3.0] Kernel panic - not syncing: x"}
	if diff := cmp.Diff(want, complaints(console)); diff != "" {
		t.Errorf("complaints() mismatch (-want +got):\n%s", diff)
	}
}
