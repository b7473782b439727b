// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	plain = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"}]}`
	dir   = "etc/cni/net.d"
)

func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, content := range files {
		out[dir+"/"+name] = &fstest.MapFile{Data: []byte(content)}
	}
	return out
}

func readDir(t *testing.T, root fs.FS) *conflist.Dir {
	t.Helper()
	d, err := conflist.ReadDir(root, dir)
	must.OK(t, err)
	return d
}

func TestReadDir(t *testing.T) {
	d := readDir(t, tree(map[string]string{
		"10-b.conflist":                   plain,
		"05-a.conf":                       `{"name":"s","type":"bridge"}`,
		"00-podweir-05-a.conflist":        `{"podweir":{"source":"05-a.conf"},"name":"s","plugins":[{"type":"bridge"},{"type":"podweir-cni"}]}`,
		"99-broken.json":                  `{`,
		"20-x.conflist.cilium_bak":        plain,
		"notes.txt":                       "hello",
		"06-dir.conflist/inside.conflist": plain,
		"n/60-late.conf":                  `{"type":"late"}`,
		"n/50-early.conf":                 `{"type":"early"}`,
		"n/70-list.conflist":              plain,
		"n/80-broken.conf":                `{"tipe":1}`,
	}))
	var names []string
	for _, f := range d.Files {
		names = append(names, f.Name)
		if (f.Err == nil) == (f.Network == nil) {
			t.Errorf("%s: network %v, error %v, want one of them", f.Name, f.Network, f.Err)
		}
	}
	want := []string{"00-podweir-05-a.conflist", "05-a.conf", "10-b.conflist", "99-broken.json"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := d.Active().Name; got != want[0] {
		t.Errorf("Active() = %s, want %s", got, want[0])
	}
	if got := d.Original().Name; got != want[1] {
		t.Errorf("Original() = %s, want %s", got, want[1])
	}
	if diff := cmp.Diff([]string{"bridge", "podweir-cni"}, d.Effective(true)); diff != "" {
		t.Errorf("Effective() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"20-x.conflist.cilium_bak"}, d.Backups); diff != "" {
		t.Errorf("backups (-want +got):\n%s", diff)
	}
	var types []string
	for _, c := range d.DropIns["n"] {
		types = append(types, c.Name+" "+c.Type)
	}
	if diff := cmp.Diff([]string{"50-early.conf early", "60-late.conf late", "80-broken.conf "}, types); diff != "" {
		t.Errorf("drop-ins (-want +got):\n%s", diff)
	}
	if err := d.DropIns["n"][2].Err; err == nil || !strings.Contains(err.Error(), "n/80-broken.conf") {
		t.Errorf("error of the broken drop-in = %v", err)
	}
}

func TestReadDirWithoutDirectory(t *testing.T) {
	if d, err := conflist.ReadDir(fstest.MapFS{}, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadDir() = %v, %v, want ErrNotExist", d, err)
	}
	d := readDir(t, fstest.MapFS{dir: {Mode: fs.ModeDir | 0o755}})
	if d.Active() != nil || d.Original() != nil || d.Effective(true) != nil {
		t.Errorf("an empty directory has %v in force", d.Active())
	}
}

// TestDropInByLibcni proves with the real libcni what a runtime makes of the
// drop-in directory, that ReadDir sees the same, and that what else is in the
// directory of conflists does not matter.
func TestDropInByLibcni(t *testing.T) {
	root := t.TempDir()
	confDir := filepath.Join(root, dir)
	dropIn, err := conflist.DropIn([]byte(entry))
	must.OK(t, err)
	for name, content := range map[string]string{
		"05-cilium.conflist":              `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni"}]}`,
		"cilium/" + conflist.DropInFile:   string(dropIn),
		"cilium/50-podweir.conf.tmp":      "half written",
		"cilium/README":                   "not a plugin",
		"00-shaper.conflist.cilium_bak":   plain,
		"06-closed.conflist":              `{"name":"closed","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}`,
		"closed/" + conflist.DropInFile:   string(dropIn),
		"07-dropins-only.conflist":        `{"name":"bare"}`,
		"bare/10-first.conf":              `{"type":"first"}`,
		"bare/" + conflist.DropInFile:     string(dropIn),
		"bare/nested.conf/not-a-conf.txt": "",
	} {
		name = filepath.Join(confDir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.OK(t, os.WriteFile(name, []byte(content), 0o644))
	}
	d := readDir(t, os.DirFS(root))
	for i, want := range [][]string{{"cilium-cni", "podweir-cni"}, {"a"}, {"first", "podweir-cni"}} {
		f := d.Files[i]
		list, err := libcni.NetworkConfFromFile(filepath.Join(confDir, f.Name))
		must.OK(t, err)
		var byLibcni []string
		for _, p := range list.Plugins {
			byLibcni = append(byLibcni, p.Network.Type)
		}
		if diff := cmp.Diff(want, byLibcni); diff != "" {
			t.Errorf("%s: chain by libcni (-want +got):\n%s", f.Name, diff)
		}
		alone := conflist.Dir{Files: []conflist.File{f}, DropIns: d.DropIns}
		if diff := cmp.Diff(want, alone.Effective(true)); diff != "" {
			t.Errorf("%s: Effective(true) (-want +got):\n%s", f.Name, diff)
		}
	}
	if diff := cmp.Diff([]string{"cilium-cni"}, d.Effective(false)); diff != "" {
		t.Errorf("Effective(false) (-want +got):\n%s", diff)
	}
}

func TestReadFileOnDisk(t *testing.T) {
	root := t.TempDir()
	path := func(name string) string { return filepath.Join(root, name) }
	must := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	must(os.WriteFile(path("good.conf"), []byte(plain), 0o644))
	must(os.WriteFile(path("huge.conf"), make([]byte, 10<<20), 0o644))
	must(os.Symlink("good.conf", path("link.conf")))
	must(os.Symlink("nowhere.conf", path("dangling.conf")))
	must(os.Symlink("loop.conf", path("loop.conf")))
	must(os.Mkdir(path("dir.conf"), 0o755))
	must(syscall.Mkfifo(path("pipe.conf"), 0o644))
	for name, want := range map[string]string{
		"good.conf": "", "link.conf": "",
		"huge.conf":     "huge.conf: has 10485760 bytes, want at most 1048576",
		"dangling.conf": "dangling.conf: is gone, or a link that leads nowhere",
		"loop.conf":     "too many levels of symbolic links",
		"dir.conf":      "dir.conf: is a directory, want a regular file",
		"pipe.conf":     "pipe.conf: is a named pipe, want a regular file",
	} {
		raw, err := conflist.ReadFile(os.DirFS(root), name)
		switch {
		case want == "" && (err != nil || string(raw) != plain):
			t.Errorf("ReadFile(%s) = %q, %v", name, raw, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("ReadFile(%s) = %v, want %q", name, err, want)
		}
	}
}

// denied refuses to open what it has.
type denied struct{ fs.FS }

func (denied) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

func TestReadFileWithoutPermission(t *testing.T) {
	_, err := conflist.ReadFile(denied{}, "x.conf")
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "x.conf: must not be read by this user, root may") {
		t.Errorf("ReadFile() = %v", err)
	}
}

// changing gives other bytes at each of the first readings.
type changing struct {
	fs.FS
	contents []string
	opened   int
}

func (c *changing) Open(string) (fs.File, error) {
	content := c.contents[min(c.opened, len(c.contents)-1)]
	c.opened++
	return fstest.MapFS{"x": {Data: []byte(content)}}.Open("x")
}

func (c *changing) Stat(string) (fs.FileInfo, error) {
	return fs.Stat(fstest.MapFS{"x": {}}, "x")
}

func TestReadFileThatChanges(t *testing.T) {
	settles := &changing{contents: []string{`{"na`, `{"name":"n","plu`, plain}}
	if raw, err := conflist.ReadFile(settles, "x"); err != nil || string(raw) != plain {
		t.Errorf("ReadFile() = %q, %v, want what is there in the end", raw, err)
	}
	var many []string
	for i := range 100 {
		many = append(many, strings.Repeat("x", i))
	}
	if raw, err := conflist.ReadFile(&changing{contents: many}, "x"); !errors.Is(err, conflist.ErrChanging) {
		t.Errorf("ReadFile() = %q, %v, want ErrChanging", raw, err)
	}
}
