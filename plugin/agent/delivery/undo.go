// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// undo takes steps back: it has every file that they change as it was before.
type undo struct {
	record *record
	// backups are the copies that the record had in its directory.
	backups []string
	kept    []keptFile
	// made are the directories that were not there, parents first.
	made []string
}

// keptFile is a second name of a file, "" if there was none.
type keptFile struct{ path, copy string }

func newUndo(r *record) *undo { return &undo{record: r, backups: r.backups()} }

// keepAll keeps what the steps change, and the record.
func (u *undo) keepAll(steps []Step) error {
	for i := range steps {
		if err := u.keep(steps[i].Path); err != nil {
			return err
		}
	}
	return u.keep(filepath.Join(u.record.dir, recordFile))
}

// keep gives what is at path a second name beside it. It is a link and no copy:
// where a disk is full a file can still come back.
func (u *undo) keep(path string) error {
	var missing []string
	for dir := filepath.Dir(path); !slices.Contains(u.made, dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	u.made = append(u.made, missing...)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		u.kept = append(u.kept, keptFile{path: path})
		return nil
	}
	if err != nil {
		return fileError("look at", path, err)
	}
	if info.IsDir() {
		return fileError("write", path, unix.EISDIR)
	}
	second := filepath.Join(filepath.Dir(path), tempPrefix+"kept-"+filepath.Base(path)+tempSuffix)
	if err := remove(second); err != nil {
		return err
	}
	if err := os.Link(path, second); err != nil {
		return fileError("write to", filepath.Dir(path), linkCause(err))
	}
	u.kept = append(u.kept, keptFile{path, second})
	return nil
}

// linkCause is the error number of a link that could not be made.
func linkCause(err error) error {
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// restore brings every file back.
func (u *undo) restore() error {
	var all error
	for _, f := range slices.Backward(u.kept) {
		if f.copy == "" {
			all = errors.Join(all, remove(f.path))
			continue
		}
		if err := os.Rename(f.copy, f.path); err != nil {
			all = errors.Join(all, fileError("write", f.path, linkCause(err)))
		}
		// Two names of one file stay two names where they are renamed.
		all = errors.Join(all, remove(f.copy))
	}
	for _, name := range u.record.backups() {
		if !slices.Contains(u.backups, name) {
			all = errors.Join(all, remove(filepath.Join(u.record.dir, name)))
		}
	}
	for _, dir := range slices.Backward(u.made) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, fileError("remove", dir, err))
		}
	}
	return all
}

// forget leaves everything as it is now.
func (u *undo) forget() error {
	var all error
	for _, f := range u.kept {
		if f.copy != "" {
			all = errors.Join(all, remove(f.copy))
		}
	}
	return all
}
