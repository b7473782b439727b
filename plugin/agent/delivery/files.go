// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Temporary files have names that no runtime and no CNI looks at.
const (
	tempPrefix = ".podweir-"
	tempSuffix = ".tmp"
)

// replace puts a file in the place of whatever has its name, at once: a reader
// sees the old one or the new one. After a crash it is one of them too, and
// perhaps a temporary file beside it.
func replace(path string, mode fs.FileMode, content io.Reader) error {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return fileError("write", path, unix.EISDIR)
	}
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*"+tempSuffix)
	if err != nil {
		return missingDir(path, err)
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fileError("write", path, err), remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// missingDir tells a missing directory from a missing file.
func missingDir(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fileError("write to", filepath.Dir(path), fs.ErrNotExist)
	}
	return fileError("write", path, err)
}

// remove removes a file; that it is gone already is not an error.
func remove(path string) error {
	err := os.Remove(path)
	if err == nil {
		return syncDir(filepath.Dir(path))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fileError("remove", path, err)
}

// syncDir makes names in a directory last. A directory that is gone has none.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("open", dir, err)
	}
	return fileError("sync", dir, errors.Join(f.Sync(), f.Close()))
}

// sweep removes the temporary files that a crash left in a directory.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("list", dir, err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), tempPrefix) && strings.HasSuffix(e.Name(), tempSuffix) {
			err = errors.Join(err, remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// hashFile is the SHA-256 of a file's content in hexadecimal.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// stamp tells cheaply whether a file is still the one that was looked at. The
// zero value is a file that is not there.
type stamp struct {
	device, inode uint64
	size          int64
	changed       unix.Timespec
	mode          uint32
}

func stampOf(path string) stamp {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return stamp{}
	}
	return stamp{st.Dev, st.Ino, st.Size, st.Ctim, st.Mode}
}

// source is the plugin's binary that is installed.
type source struct {
	stamp stamp
	hash  string
}

// read hashes the source again if it is another file than before.
func (s *source) read(path string) error {
	now := stampOf(path)
	if now == s.stamp && s.hash != "" {
		return nil
	}
	hash, err := hashFile(path)
	if err != nil {
		return unusable("read", path, cause(err), "the plugin's binary that is to be installed (--binary)")
	}
	*s = source{now, hash}
	return nil
}

// unwritable says why a directory cannot be written, nil if it can, without
// writing to it.
func unwritable(dir string) error {
	err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", dir, err)
	}
	return nil
}

// lockInterval is how often podweir tries for a lock that another process holds.
const lockInterval = 200 * time.Millisecond

// lock keeps every other podweir from writing to this node's files. The lock is
// on the directory of conflists, or what of it is there, so that it needs no
// file of its own and is the same in every container. It returns [ErrRunning] if
// another process has it.
func (m *Manager) lock(ctx context.Context) (unlock func(), err error) {
	if !m.busy.TryLock() {
		return nil, ErrRunning
	}
	defer func() {
		if err != nil {
			m.busy.Unlock()
		}
	}()
	if m.node == nil {
		m.detect(ctx, nil)
	}
	dir := m.real("/" + m.node.ConfDir)
	var f *os.File
	for {
		f, err = os.Open(dir)
		if !isMissing(err) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	if err != nil {
		return nil, fileError("open", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is locked: %w", dir, ErrRunning)
		}
		return nil, fileError("lock", dir, err)
	}
	return func() {
		_ = f.Close() // which releases it
		m.busy.Unlock()
	}, nil
}

// waitLock waits until the one that has the lock ends: the agent that this one
// takes the place of.
func (m *Manager) waitLock(ctx context.Context) (unlock func(), err error) {
	told := false
	for {
		unlock, err = m.lock(ctx)
		if !errors.Is(err, ErrRunning) {
			return unlock, err
		}
		if !told {
			m.log.Info("agent starts when the one before it has ended")
			told = true
		}
		if err := sleep(ctx, lockInterval); err != nil {
			return nil, err
		}
	}
}
