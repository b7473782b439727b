// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package pins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
)

// The pause between two attempts at a lock that is held: at first a fraction
// of what an ADD takes, in the end so long that waiting costs nothing.
const (
	lockPauseMin = time.Millisecond
	lockPauseMax = 20 * time.Millisecond
)

// lockWait is how long Lock waits for another process. A context with a deadline would do, too, and starts the poller
// of the Go runtime, in processes that have nobody to wait for.
const lockWait = 30 * time.Second

// Lock excludes everyone else, in this and in other processes, from an
// attachment until unlock is called or the process ends. Other attachments are
// not touched. It makes the attachment's directory, on which the lock is, and
// unlock removes it if it is empty.
//
// Returns an error after 30 s, and one wrapping ctx's if that ends first.
func (s *Store) Lock(ctx context.Context, id attach.ID) (unlock func(), err error) {
	dir, err := s.Path(id)
	if err != nil {
		return nil, err
	}
	began, pause := time.Now(), lockPauseMin
	for {
		fd, err := s.tryLock(dir)
		if err != nil {
			return nil, fmt.Errorf("lock %v: %w", id, err)
		}
		if fd >= 0 {
			return func() {
				// Still locked: nobody else can be about to fill it. Who
				// waits for it finds another inode and tries again.
				_ = s.prune(dir)
				_ = unix.Close(fd)
			}, nil
		}
		if time.Since(began) >= lockWait {
			return nil, fmt.Errorf("lock %v, held by another process for %v", id, lockWait)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %v, held by another process: %w", id, context.Cause(ctx))
		case <-time.After(pause):
		}
		pause = min(2*pause, lockPauseMax)
	}
}

// tryLock returns the locked directory, -1 if another process holds the lock or the
// directory was removed meanwhile.
func (s *Store) tryLock(dir string) (fd int, err error) {
	if err := mkdirAll(dir); err != nil {
		return -1, err
	}
	fd, err = openDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && sameFile(fd, dir) {
		return fd, nil
	}
	_ = unix.Close(fd)
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return -1, nil
	}
	return -1, fmt.Errorf("flock %s: %w", dir, err)
}

// Turn is the lock of an attachment for a loop that takes it many times a second, and tries
// again later instead of waiting.
type Turn struct{ fd int }

// Turn opens the lock of an attachment, which has a directory. Close it.
func (s *Store) Turn(id attach.ID) (*Turn, error) {
	dir, err := s.Path(id)
	if err != nil {
		return nil, err
	}
	fd, err := openDir(dir)
	if err != nil {
		return nil, fmt.Errorf("lock %v: %w", id, err)
	}
	return &Turn{fd}, nil
}

// Take takes the lock if nobody has it, and says whether it did. One of a directory that was
// removed meanwhile excludes nobody.
func (t *Turn) Take() bool {
	return unix.Flock(t.fd, unix.LOCK_EX|unix.LOCK_NB) == nil
}

// Give gives the lock back.
func (t *Turn) Give() { _ = unix.Flock(t.fd, unix.LOCK_UN) }

// Close closes it.
func (t *Turn) Close() { _ = unix.Close(t.fd) }

// sameFile says whether the open directory is still the one at its path. A
// lock on a removed directory locks nothing.
func sameFile(fd int, path string) bool {
	var open, there unix.Stat_t
	return unix.Fstat(fd, &open) == nil && unix.Stat(path, &there) == nil &&
		open.Ino == there.Ino && open.Dev == there.Dev
}
