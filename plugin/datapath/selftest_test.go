// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath_test

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/testutil"
)

// A process that may not make maps gets an error, and no more.
func TestPrivilegedVerdictsWithoutCapability(t *testing.T) {
	testutil.RequireRoot(t)
	result := make(chan error)
	go func() {
		// The thread ends with the goroutine: nobody else gets it without its
		// capabilities.
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			result <- err
			return
		}
		_, err := datapath.TestVerdicts()
		result <- err
	}()
	if err := <-result; !errors.Is(err, unix.EPERM) {
		t.Errorf("error %v, want %v", err, unix.EPERM)
	}
}
