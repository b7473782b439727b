// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestHostRoot: links are followed within the root and never out of it.
func TestHostRoot(t *testing.T) {
	outside := t.TempDir()
	root := filepath.Join(outside, "host")
	for _, dir := range []string{"etc/cni/net.d", "run", "proc/7", "real"} {
		must.OK(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for name, content := range map[string]string{
		"secret": "outside", "host/secret": "inside", "host/run/x": "x", "host/etc/cni/net.d/a": "a",
	} {
		must.OK(t, os.WriteFile(filepath.Join(outside, name), []byte(content), 0o644))
	}
	for name, target := range map[string]string{
		"var": "/nowhere", "absolute": "/secret", "up": "../../../secret", "loop": "loop", "relative": "etc/cni/../cni/net.d",
		"chain": "absolute", "etc/link": "../run", "real/abs": "/etc/link/x", "proc/7/root": "/real",
	} {
		must.OK(t, os.Symlink(target, filepath.Join(root, name)))
	}
	host := detect.HostRoot(root + "/")
	for name, want := range map[string]string{
		"absolute": "inside", "up": "inside", "chain": "inside", "relative/a": "a", "etc/link/x": "x", "real/abs": "x",
		// The kernel's link is followed by the kernel: here it is a plain link out
		// of the root, and there is no /real.
		"proc/7/root/abs": "", "var/x": "", "loop": "", "etc": "",
	} {
		got, err := fs.ReadFile(host, name)
		if want == "" && err == nil || want != "" && (err != nil || string(got) != want) {
			t.Errorf("ReadFile(%s) = %q, %v, want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]error{
		"loop": syscall.ELOOP, "var/x": fs.ErrNotExist, "../secret": fs.ErrInvalid, "/secret": fs.ErrInvalid,
	} {
		if _, err := fs.Stat(host, name); !errors.Is(err, want) {
			t.Errorf("Stat(%s) = %v, want %v", name, err, want)
		}
	}
	entries, err := fs.ReadDir(host, "relative")
	if err != nil || len(entries) != 1 || entries[0].Name() != "a" {
		t.Errorf("ReadDir(relative) = %v, %v", entries, err)
	}
	if target, err := fs.ReadLink(host, "chain"); err != nil || target != "absolute" {
		t.Errorf("ReadLink(chain) = %q, %v", target, err)
	}
	if info, err := fs.Lstat(host, "chain"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("Lstat(chain) = %v, %v", info, err)
	}
}

// TestProcessRoot follows the kernel's link to the root of this very process.
func TestProcessRoot(t *testing.T) {
	self, err := os.Readlink("/proc/self")
	must.OK(t, err)
	pid := filepath.Base(self)
	a, err := fs.ReadFile(detect.HostRoot("/"), "proc/"+pid+"/root/proc/sys/kernel/osrelease")
	must.OK(t, err)
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || string(a) != string(b) {
		t.Errorf("osrelease through the process = %q, directly %q, %v", a, b, err)
	}
}

// FuzzContainerdConfig: no configuration of the runtime, which is TOML, breaks the reader
// or leads out of the node's root. It reads that file alone, which is more than twice as
// fast as a look at a whole node.
func FuzzContainerdConfig(f *testing.F) {
	f.Add([]byte("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n"))
	f.Add([]byte("bin_dirs = ['/a', \"/b\"]\nconf_dir = '../../x'\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		root := fstest.MapFS{"etc/containerd/config.toml": &fstest.MapFile{Data: raw}}
		c := detect.ReadRuntimeConfig(root, nil)
		for _, dir := range append(c.BinDirs, c.ConfDir) {
			if path.IsAbs(dir) || dir == ".." || strings.HasPrefix(dir, "../") {
				t.Errorf("directory %q is not below the root", dir)
			}
		}
	})
}
