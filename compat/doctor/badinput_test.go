// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// spoiled refuses one file of a tree, or gives other bytes each time it is
// opened.
type spoiled struct {
	fstest.MapFS
	name   string
	err    error
	opened int
}

func (s *spoiled) Open(name string) (fs.File, error) {
	if name != s.name {
		return s.MapFS.Open(name)
	}
	if s.err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: s.err}
	}
	s.opened++
	s.MapFS[name] = &fstest.MapFile{Data: []byte(list + strings.Repeat(" ", s.opened))}
	return s.MapFS.Open(name)
}

// outcomes are the results of a node's directory of conflists, by code.
func outcomes(t *testing.T, root fs.FS) map[string]doctor.Outcome {
	t.Helper()
	rep := doctor.Run(doctor.Gather(t.Context(), root, detect.Read(t.Context(), root, detect.Options{}), doctor.Options{}))
	out := map[string]doctor.Outcome{}
	for _, o := range rep.Checks {
		out[o.Code] = o
	}
	return out
}

// snapshot is everything in a directory.
func snapshot(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(name)
		if err == nil {
			all = append(all, fmt.Sprint(name, info.Mode(), info.ModTime().Format(time.RFC3339Nano), info.Size()))
		}
		return err
	})
	must.OK(t, err)
	return all
}

// TestBadInput: whatever is in the place of the conflist in force, or of a
// drop-in, is named with what is wrong with it, and nothing on the node changes.
func TestBadInput(t *testing.T) {
	write := func(content string) func(string) error {
		return func(name string) error { return os.WriteFile(name, []byte(content), 0o644) }
	}
	link := func(target string) func(string) error {
		return func(name string) error { return os.Symlink(target, name) }
	}
	for name, tc := range map[string]struct {
		make func(name string) error
		// says is in PW201 for a conflist, and in PW212 for a drop-in unless
		// dropIn is; "" if it is none of both and what is behind it is in force.
		says, dropIn string
	}{
		"broken":                  {write(`{"name":"n","plugins":[{"type":"x"]}`), "is not JSON", "invalid character ']' after object"},
		"cut off":                 {write(`{"name":"n","plugins":[`), "ends in the middle of the JSON object", "unexpected end of JSON input"},
		"empty":                   {write(""), "the file is empty", ""},
		"huge":                    {write(strings.Repeat(" ", 10<<20)), "has 10485760 bytes, want at most 1048576", ""},
		"not UTF-8":               {write("{\"name\":\"\xff\"}"), "is not UTF-8", ""},
		"link that leads nowhere": {link("nowhere"), "is gone, or a link that leads nowhere", ""},
		"link to itself":          {link("00-x.conf"), "too many levels of symbolic links", ""},
		"link to a directory":     {link(".."), "is a directory, want a regular file", ""},
		"directory":               {func(name string) error { return os.Mkdir(name, 0o755) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			conf := filepath.Join(root, net)
			must.OK(t, os.MkdirAll(filepath.Join(conf, "cilium"), 0o755))
			must.OK(t, write(list)(filepath.Join(conf, "10-good.conflist")))
			for _, place := range []struct{ file, code, good string }{
				{"00-x.conf", "PW201", "10-good.conflist"}, {"cilium/00-x.conf", "PW212", ""},
			} {
				says := tc.says
				if place.code == "PW212" && tc.dropIn != "" {
					says = tc.dropIn
				}
				bad := filepath.Join(conf, place.file)
				must.OK(t, tc.make(bad))
				before := snapshot(t, root)
				o := outcomes(t, detect.HostRoot(root))[place.code]
				if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
					t.Errorf("the doctor changed the node (-before +after):\n%s", diff)
				}
				switch {
				case says == "" && (o.Status == doctor.Fail || !strings.Contains(o.Seen, place.good)):
					t.Errorf("%s %s: %s, want %s in force", o.Code, o.Status, o.Seen, place.good)
				case says != "" && (o.Status != doctor.Fail || !strings.Contains(o.Seen, says) || !strings.Contains(o.Seen, "00-x.conf")):
					t.Errorf("%s %s: %s, want %q", o.Code, o.Status, o.Seen, says)
				}
				must.OK(t, os.Remove(bad))
			}
		})
	}
}

// TestBadInputThatRootMayRead: what a real file system does not do for root.
func TestBadInputThatRootMayRead(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"no permission":          {fs.ErrPermission, "must not be read by this user, root may"},
		"changes while read":     {nil, "the file changes while it is read"},
		"gone meanwhile":         {fs.ErrNotExist, "is gone"},
		"read error of the disk": {fs.ErrInvalid, "invalid argument"},
	} {
		t.Run(name, func(t *testing.T) {
			for file, code := range map[string]string{net + "10-good.conflist": "PW201", net + "cilium/10-x.conf": "PW212"} {
				root := &spoiled{MapFS: fstest.MapFS{
					net + "10-good.conflist": {Data: []byte(list)}, net + "cilium/10-x.conf": {Data: []byte(`{"type":"x"}`)},
				}, name: file, err: tc.err}
				o := outcomes(t, root)[code]
				if o.Status != doctor.Fail || !strings.Contains(o.Seen, tc.says) {
					t.Errorf("%s: %s %s: %s, want %q", file, code, o.Status, o.Seen, tc.says)
				}
			}
		})
	}
}
