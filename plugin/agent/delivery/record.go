// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/detect"
)

// recordVersion is the version of the record's form.
const recordVersion = 1

// recordFile is in the state directory, and so are the files that stood where
// podweir's stand now.
const recordFile = "installed.json"

// backupPrefix begins the names of those files.
const backupPrefix = "before-"

// record is what podweir put where, and what was there before: all that the
// files themselves do not tell and that leaving no trace needs. It is written
// before the file that it tells of.
type record struct {
	Version int `json:"version"`
	// Runtime is the container runtime that the operator named, "" if podweir
	// found out by itself.
	Runtime string `json:"runtime,omitempty"`
	// Defaults are what the operator wants for all pods of the node.
	Defaults map[string]any `json:"defaults,omitempty"`
	// Fight is a file that another program changes back, nil without one.
	Fight *Fight `json:"fight,omitempty"`
	// Items are by path, in the order in which they were made.
	Items []*item `json:"items"`

	// root is where the node's root is, dir the state directory, both in our own
	// file system.
	root, dir string
}

// item is one file or directory of podweir's.
type item struct {
	// Path is absolute, on the node: the record is read on the node itself and in
	// containers that have its root mounted.
	Path string `json:"path"`
	// Directory says that podweir made this directory.
	Directory bool `json:"directory,omitempty"`
	// SHA256 are the hashes of what podweir put there: of the binary only, since
	// podweir's other files are known by their names.
	SHA256 []string `json:"sha256,omitempty"`
	// Before is what was there, nil if nothing was.
	Before *before `json:"before,omitempty"`
}

// before is a file of another party's in the place of podweir's.
type before struct {
	// Link is its target if it was a symbolic link, else Backup is the name of
	// its copy in the state directory.
	Link   string `json:"link,omitempty"`
	Backup string `json:"backup,omitempty"`
	// What else it was.
	Mode    fs.FileMode `json:"mode,omitempty"`
	UID     uint32      `json:"uid"`
	GID     uint32      `json:"gid"`
	ModTime time.Time   `json:"modTime"`
}

// loadRecord reads the record in a directory; one that is not there is empty.
func loadRecord(root, dir string) (*record, error) {
	r := &record{Version: recordVersion, root: root, dir: dir}
	path := filepath.Join(dir, recordFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fileError("read", path, err)
	}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, &FileError{Op: "read", Path: path, Err: err, Want: "podweir's record; move it away to begin a new one"}
	}
	if r.Version != recordVersion {
		return nil, &FileError{
			Op: "read", Path: path, Err: fmt.Errorf("version %d", r.Version),
			Want: fmt.Sprintf("version %d, or the release of podweir that wrote it", recordVersion),
		}
	}
	return r, nil
}

// ToldRuntime returns the container runtime that the operator named when podweir
// was installed on the node below root, "" if he did not: what judges afterwards
// is to judge the same node.
func ToldRuntime(root string) string {
	r, _ := told(root)
	return r.Runtime
}

// ToldDefaults returns the defaults with which podweir was installed on the node below
// root; known is false if it is not installed there, or leaves no files.
func ToldDefaults(root string) (defaults map[string]any, known bool) {
	r, known := told(root)
	return r.Defaults, known
}

// ToldFight returns the file that an agent on the node below root stopped writing, because
// another program changes it back; nil if there is none.
func ToldFight(root string) *Fight {
	r, _ := told(root)
	return r.Fight
}

// told is the record of the node below root. It is empty and not known where nothing is
// installed, or the record cannot be read.
func told(root string) (r *record, known bool) {
	full, err := detect.Resolve(root, DefaultState)
	if err != nil {
		return &record{}, false
	}
	r, err = loadRecord(root, full)
	if err != nil {
		return &record{}, false
	}
	return r, len(r.Items) > 0
}

// find returns the item of a path in our own file system, nil if there is none.
func (r *record) find(path string) *item {
	for _, i := range r.Items {
		if r.at(i) == path {
			return i
		}
	}
	return nil
}

// at is where an item is in our own file system.
func (r *record) at(i *item) string { return filepath.Join(r.root, i.Path) }

// add notes a path of our own file system.
func (r *record) add(path string) *item {
	onNode, err := filepath.Rel(r.root, path)
	if err != nil {
		onNode = path // both are absolute: it cannot be
	}
	i := &item{Path: filepath.Join("/", onNode)}
	r.Items = append(r.Items, i)
	return i
}

func (r *record) forget(i *item) {
	r.Items = slices.DeleteFunc(r.Items, func(other *item) bool { return other == i })
}

// save writes the record, or removes it with its directory if nothing is left.
func (r *record) save() error {
	if err := r.makeDir(r.dir); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	return replace(filepath.Join(r.dir, recordFile), 0o600, write(append(raw, '\n')))
}

// makeDir makes a directory and its parents and notes those that it made. The
// caller saves the record.
func (r *record) makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fileError("make directory", dir, unix.ENOTDIR)
		}
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := r.makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fileError("make directory", dir, err)
	}
	if r.find(dir) == nil {
		r.add(dir).Directory = true
	}
	return nil
}

// claim notes that podweir is about to put a file at path, and keeps what is
// there if it was not podweir's. hash is the file's, or empty where the
// name alone says that a file is podweir's; ours says that what is there is
// podweir's, although the record may not know.
func (r *record) claim(path, hash string, ours bool) error {
	i := r.find(path)
	changed := i == nil
	if i == nil {
		i = r.add(path)
		if !ours {
			var err error
			if i.Before, err = r.keep(path); err != nil {
				r.forget(i)
				return err
			}
		}
	}
	if hash != "" && !slices.Contains(i.SHA256, hash) {
		i.SHA256, changed = append(i.SHA256, hash), true
	}
	if !changed {
		return nil
	}
	return r.save()
}

// keep copies what is at path into the state directory; nil if nothing is.
func (r *record) keep(path string) (*before, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, fileError("look at", path, err)
	}
	b := &before{UID: st.Uid, GID: st.Gid, ModTime: time.Unix(st.Mtim.Unix()).UTC(), Mode: fs.FileMode(st.Mode & 0o777)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		var err error
		b.Link, err = os.Readlink(path)
		return b, fileError("read link", path, err)
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return nil, fileError("write", path, unix.EISDIR)
	default:
		return nil, &FileError{Op: "write", Path: path, Err: errors.New("is neither a file nor a link"), Want: "a file or nothing there"}
	}
	found, err := hashFile(path)
	if err != nil {
		return nil, fileError("read", path, err)
	}
	b.Backup = backupPrefix + found[:16]
	if err := r.makeDir(r.dir); err != nil {
		return nil, err
	}
	return b, replace(filepath.Join(r.dir, b.Backup), 0o600, copyFrom(path))
}

// restore puts back what was at a path before podweir, or nothing, and forgets
// the item. The caller saves the record.
func (r *record) restore(i *item) error {
	b, path := i.Before, r.at(i)
	switch {
	case b == nil:
		if err := remove(path); err != nil {
			return err
		}
	case b.Link != "":
		if err := relink(path, b); err != nil {
			return err
		}
	default:
		if err := replace(path, b.Mode, copyFrom(filepath.Join(r.dir, b.Backup))); err != nil {
			return err
		}
		if err := as(path, b); err != nil {
			return err
		}
	}
	r.forget(i)
	return nil
}

// relink puts a symbolic link back at once.
func relink(path string, b *before) error {
	temp := filepath.Join(filepath.Dir(path), tempPrefix+"link"+tempSuffix)
	if err := remove(temp); err != nil {
		return err
	}
	if err := os.Symlink(b.Link, temp); err != nil {
		return fileError("write", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(fileError("write", path, err), remove(temp))
	}
	return fileError("write", path, os.Lchown(path, int(b.UID), int(b.GID)))
}

// as gives a file the owner and time that it had.
func as(path string, b *before) error {
	if err := os.Chown(path, int(b.UID), int(b.GID)); err != nil {
		return fileError("write", path, err)
	}
	return fileError("write", path, os.Chtimes(path, b.ModTime, b.ModTime))
}

// close removes what podweir keeps for itself, after everything was restored:
// the copies, the record, and the directories that it made, as far as they are
// empty.
func (r *record) close() error {
	if slices.ContainsFunc(r.Items, func(i *item) bool { return !i.Directory }) {
		return r.save()
	}
	for _, name := range append(r.backups(), recordFile) {
		if err := remove(filepath.Join(r.dir, name)); err != nil {
			return err
		}
	}
	for _, i := range slices.Backward(r.Items) {
		err := os.Remove(r.at(i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
			return fileError("remove", r.at(i), err)
		}
	}
	return nil
}

// set takes in the settings of the operator, and says whether they are others than
// before. The caller saves the record.
func (r *record) set(runtime string, defaults map[string]any) (changed bool) {
	changed = r.Runtime != runtime || !sameJSON(r.Defaults, defaults)
	r.Runtime, r.Defaults = runtime, defaults
	return changed
}

// sameJSON compares settings as they are written: a list is one, whatever its type.
func sameJSON(a, b map[string]any) bool {
	if len(a) == 0 && len(b) == 0 {
		return true
	}
	first, err := json.Marshal(a)
	second, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && bytes.Equal(first, second)
}

// backups are the names of the copies in the state directory.
func (r *record) backups() []string {
	var out []string
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil // there are none
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), backupPrefix) {
			out = append(out, e.Name())
		}
	}
	return out
}
