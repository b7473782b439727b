// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package mailbox is podweir's directory on tmpfs, by which the agent, podweir-cni and the
// commands leave each other word. All of it may be deleted at any time.
package mailbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is the directory.
type Dir string

// Names in it.
const (
	pastFile       = "past.json"
	reachedFile    = "reached.json"
	unenforcedFile = "unenforced.json"
	groupsFile     = "groups.json"
	unshapedDir    = "unshaped"
)

func (d Dir) path(parts ...string) string {
	return filepath.Join(string(d), filepath.Join(parts...))
}

// Unwritable says why nothing can be left in the directory, nil if something can. If nobody needed it yet, whoever does
// makes it: what it is in counts then.
func (d Dir) Unwritable() error {
	err := unix.Faccessat(unix.AT_FDCWD, string(d), unix.W_OK, unix.AT_EACCESS)
	if errors.Is(err, os.ErrNotExist) {
		if err := Dir(filepath.Dir(string(d))).Unwritable(); !errors.Is(err, os.ErrPermission) { // root makes it, whoever asks
			return err
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", d, err)
	}
	return nil
}

// readJSON reads what [Write] left, nothing if there is no such file.
func readJSON[T any](path string) ([]T, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []T
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Write replaces a file, and makes its directory if that is missing. Everybody may
// read the file.
func Write(path string, v any) error {
	content, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(content, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// readRecords reads the records in a directory, by the order of their names. One that goes
// meanwhile is passed over; one that cannot be read is what damaged makes of its name,
// without the extension, and of what is wrong.
func readRecords[T any](dir string, damaged func(name, why string) T) ([]T, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []T
	for _, name := range names {
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var one T
		if err == nil {
			err = json.Unmarshal(b, &one)
		}
		if err == nil && reflect.ValueOf(one).IsZero() {
			err = errors.New("it says nothing")
		}
		if err != nil {
			why := fmt.Sprintf("it had no limit, and the record of why is damaged: remove %s: %v", name, err)
			one = damaged(strings.TrimSuffix(filepath.Base(name), ".json"), why)
		}
		all = append(all, one)
	}
	return all, nil
}

// readFresh reads what an agent writes again and again, nothing if it is too old.
func readFresh[T any](path string) ([]T, error) {
	if at, err := writtenNow(path); at.IsZero() || err != nil {
		return nil, err
	}
	return readJSON[T](path)
}
