// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// The monitor has another slack than the kernel's, and the thread that runs the verb has not. A thread that the monitor
// starts meanwhile, on a busy machine, inherits its slack.
func TestPrivilegedMonitorSleepsLonger(t *testing.T) {
	testutil.RequireRoot(t)
	const longer = "1000000\n" // 1 ms
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calm()
	threads := must.Get(os.ReadDir("/proc/self/task"))(t)
	of := make(map[string]string)
	for _, thread := range threads {
		slack, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if os.IsNotExist(err) {
			continue // it has ended
		}
		must.OK(t, err)
		of[thread.Name()] = string(slack)
	}
	own := of[strconv.Itoa(syscall.Gettid())]
	if own == longer || !slices.Contains(slices.Collect(maps.Values(of)), longer) {
		t.Errorf("threads and their slack in ns: %q, want one of 1 ms, and not %q of the one that asks", of, own)
	}
}
