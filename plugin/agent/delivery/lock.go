// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

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
	release, err := m.lockNode(ctx)
	if err != nil {
		m.busy.Unlock()
		return nil, err
	}
	return func() {
		release()
		m.busy.Unlock()
	}, nil
}

func (m *Manager) lockNode(ctx context.Context) (release func(), err error) {
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
	// Closing releases it.
	return func() { _ = f.Close() }, nil
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
