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

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
)

// recordVersion is the version of the record's form.
const recordVersion = 1

// recordFile is in the state directory.
const recordFile = "installed.json"

// Noted is what podweir notes of a node beside its files.
type Noted struct {
	// Runtime is the container runtime that the operator named, "" if podweir
	// found out by itself.
	Runtime string `json:"runtime,omitempty"`
	// Defaults are what the operator wants for all pods of the node.
	Defaults map[string]any `json:"defaults,omitempty"`
	// Fight is a file that another program changes back, nil without one.
	Fight *conflist.Fight `json:"fight,omitempty"`
}

// record is what podweir put where: all that the files themselves do not tell and
// that leaving no trace needs. It is written before the file that it tells of.
type record struct {
	Version int `json:"version"`
	Noted
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
}

func (i *item) binary() bool { return !i.Directory && filepath.Base(i.Path) == conflist.Type }

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
		return nil, unusable("read", path, err, "podweir's record; move it away to begin a new one")
	}
	if r.Version != recordVersion {
		return nil, unusable("read", path, fmt.Errorf("version %d", r.Version), fmt.Sprintf("version %d, or the release of podweir that wrote it", recordVersion))
	}
	return r, nil
}

// Told returns what was noted on the node below root, so that who judges afterwards judges the
// same node. It is empty and not known where nothing is installed or no files were left, or
// the record cannot be read.
func Told(root string) (is Noted, known bool) {
	full, err := detect.Resolve(root, StateDir)
	if err != nil {
		return Noted{}, false
	}
	r, err := loadRecord(root, full)
	if err != nil {
		return Noted{}, false
	}
	return r.Noted, len(r.Items) > 0
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
	if err := replace(filepath.Join(r.dir, recordFile), 0o600, bytes.NewReader(append(raw, '\n'))); err != nil {
		_ = os.Remove(r.dir) // it stays unless it is empty
		return err
	}
	return nil
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
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist): // another party's by now, or its link that leads nowhere here
	case err != nil:
		return fileError("make directory", dir, err)
	case r.find(dir) == nil:
		r.add(dir).Directory = true
	}
	return nil
}

// claim notes that podweir is about to put a file at path, under a name that is
// podweir's alone: whatever is there goes. hash is the file's, or empty where the name
// alone says that a file is podweir's.
func (r *record) claim(path, hash string) error {
	i := r.find(path)
	changed := i == nil
	if i == nil {
		i = r.add(path)
	}
	if hash != "" && !slices.Contains(i.SHA256, hash) {
		i.SHA256, changed = append(i.SHA256, hash), true
	}
	if !changed {
		return nil
	}
	return r.save()
}

// close removes what podweir keeps for itself when its files are gone: the record, and
// the directories that it made, as far as they are empty.
func (r *record) close() error {
	if slices.ContainsFunc(r.Items, func(i *item) bool { return !i.Directory }) {
		return r.save()
	}
	if err := remove(filepath.Join(r.dir, recordFile)); err != nil {
		return err
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
	first, _ := json.Marshal(a) // they were read from JSON
	second, _ := json.Marshal(b)
	return len(a)+len(b) == 0 || bytes.Equal(first, second)
}
