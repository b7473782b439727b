// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// takeInterval is how often a node that another agent keeps is tried again.
const takeInterval = 500 * time.Millisecond

// TakeNode waits until no other agent manages the node, and keeps it until release
// is called or the process ends, however it ends. While it waits it calls waiting,
// again and again.
//
// dir is the directory of probe results and failure records, which all agents of a
// node share. Its lock needs no file of its own.
func TakeNode(ctx context.Context, dir string, waiting func()) (release func(), err error) {
	for {
		release, err := tryNode(dir)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return release, err
		}
		waiting()
		timer := time.NewTimer(takeInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

func tryNode(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("take the node: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("take the node: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("take the node: lock %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}
