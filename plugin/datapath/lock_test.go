// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"errors"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// Who waits for the node's lock gets it when it is released. A process that is stuck with
// it does not stop the others for ever, nor does one that gave up keep it.
func TestNodeLockIsWaitedForInVain(t *testing.T) {
	before := lockTimeout
	t.Cleanup(func() { lockTimeout = before })
	n := OpenNode(t.TempDir(), t.TempDir())
	lock := func() func() {
		t.Helper()
		unlock, err := n.lock()
		must.OK(t, err)
		return unlock
	}
	stuck := lock()
	lockTimeout = 10 * time.Millisecond
	if _, err := n.lock(); !errors.Is(err, errHeld) {
		t.Errorf("a lock that is held: %v, want %v", err, errHeld)
	}
	lockTimeout = before
	released := time.AfterFunc(20*time.Millisecond, stuck)
	lock()()
	if released.Stop() {
		t.Error("the lock was given while it was held")
	}
}
