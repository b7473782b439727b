// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/podweir/podweir/plugin/attach"
)

// holdersName is the directory of the links of [Store.Hold]. No network can have its name.
const holdersName = "holders" + separator

// nextHolder ends the name under which a link waits to replace another.
const nextHolder = "-next"

// Hold notes that an attachment has a device, in place of the one that had it. The name of the device has only letters,
// digits, '-' and '_', and no other device gets it before the next boot. The note is a link to the attachment's directory,
// so that nobody reads the records of a whole node to find out whose a device is.
func (s *Store) Hold(device string, id attach.ID) error {
	target, err := holding(id)
	if err != nil {
		return err
	}
	path := s.holderPath(device)
	for range mkdirAttempts {
		err = os.Symlink(target, path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			err = mkdirAll(filepath.Dir(path))
		case errors.Is(err, os.ErrExist):
			if now, _ := os.Readlink(path); now == target {
				return nil
			}
			err = replaceLink(path, target)
		default:
			return noted(err)
		}
		if err != nil {
			return noted(err)
		}
	}
	return noted(errors.New("others change it again and again"))
}

// replaceLink makes a link that is there one to target, so that there is no moment without one. The caller looks at what
// came of it: another process may do the same.
func replaceLink(path, target string) error {
	next := path + nextHolder
	err := os.Symlink(target, next)
	if errors.Is(err, os.ErrExist) { // an interrupted run left it
		return unlink(next)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Holder returns the attachment that has a device, and whether one is noted.
func (s *Store) Holder(device string) (id attach.ID, found bool, err error) {
	target, err := os.Readlink(s.holderPath(device))
	if errors.Is(err, os.ErrNotExist) {
		return attach.ID{}, false, nil
	}
	if err != nil {
		return attach.ID{}, false, noted(err)
	}
	dir, base := filepath.Split(target)
	if id, err = decodeAttachment(base); err == nil {
		id.Network, err = Decode(filepath.Base(dir))
	}
	return id, err == nil, nil
}

// LetGo takes the note back, unless another attachment has the device by now.
func (s *Store) LetGo(device string, id attach.ID) error {
	if now, found, err := s.Holder(device); err != nil || !found || now != id {
		return err
	}
	path := s.holderPath(device)
	return noted(errors.Join(unlink(path), unlink(path+nextHolder))) // an interrupted run may have left the second
}

// RemoveLeftHolders removes the notes of attachments that have no directory any more: one whose record could not be read,
// or that an older release removed, which knew of no notes.
func (s *Store) RemoveLeftHolders() error {
	names, err := readNames(filepath.Join(s.root, holdersName))
	for _, name := range names {
		path := s.holderPath(name)
		if _, led := os.Stat(path); errors.Is(led, os.ErrNotExist) {
			err = errors.Join(err, unlink(path))
		}
	}
	return noted(err)
}

func (s *Store) holderPath(device string) string { return filepath.Join(s.root, holdersName, device) }

// holding is the target of the links to an attachment.
func holding(id attach.ID) (string, error) {
	path, err := (&Store{root: ".."}).Path(id)
	return strings.TrimSuffix(path, "/"), err
}

func unlink(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func noted(err error) error {
	if err != nil {
		return fmt.Errorf("note whose a device is: %w", err)
	}
	return nil
}
