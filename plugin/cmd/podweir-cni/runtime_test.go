// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// The monitor is the one thread that has another slack than the kernel's.
func TestPrivilegedMonitorSleepsLonger(t *testing.T) {
	testutil.RequireRoot(t)
	calm()
	threads, err := os.ReadDir("/proc/self/task")
	must.OK(t, err)
	of := make(map[string]int)
	for _, thread := range threads {
		slack, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if os.IsNotExist(err) {
			continue // it has ended
		}
		must.OK(t, err)
		of[string(slack)]++
	}
	if of["1000000\n"] != 1 {
		t.Errorf("threads by their slack in ns: %v, want one of 1 ms", of)
	}
}
