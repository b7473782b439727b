// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// holdersName is the directory of the links of [Store.Hold]. No network can have its name.
const holdersName = "holders" + separator

// nextHolder ends the name under which a link waits to replace another.
const nextHolder = "-next"

// Hold notes that an attachment has a device, in place of the one that had it. The name of the device has only letters,
// digits, '-' and '_', and no other device gets it before the next boot. The note is a link to the attachment's directory,
// so that nobody reads the records of a whole node to find out whose a device is.
func (s *Store) Hold(device string, k Key) error {
	target, err := holding(k)
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
func (s *Store) Holder(device string) (k Key, found bool, err error) {
	target, err := os.Readlink(s.holderPath(device))
	if errors.Is(err, os.ErrNotExist) {
		return Key{}, false, nil
	}
	if err != nil {
		return Key{}, false, noted(err)
	}
	dir, base := filepath.Split(target)
	if k, err = decodeAttachment(base); err == nil {
		k.Network, err = Decode(filepath.Base(dir))
	}
	return k, err == nil, nil
}

// LetGo takes the note back, unless another attachment has the device by now.
func (s *Store) LetGo(device string, k Key) error {
	if now, found, err := s.Holder(device); err != nil || !found || now != k {
		return err
	}
	path := s.holderPath(device)
	return noted(errors.Join(unlink(path), unlink(path+nextHolder))) // an interrupted run may have left the second
}

func (s *Store) holderPath(device string) string { return filepath.Join(s.root, holdersName, device) }

// holding is the target of the links to an attachment.
func holding(k Key) (string, error) {
	path, err := (&Store{root: ".."}).Path(k)
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
