// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/prometheus/procfs"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestForeign: process 100 is ours, 101 its child, 102 the child's; 200 and 300 are
// others', 300 began in between; 50 and 51 are the kernel's.
func TestForeign(t *testing.T) {
	before := &reading{processes: map[int]process{
		1: {0, 1}, 100: {1, 1}, 101: {100, 0}, 102: {101, 1}, 200: {1, 3}, kthreadd: {0, 0}, 50: {kthreadd, 7}, 51: {kthreadd, 1},
	}}
	now := &reading{processes: map[int]process{
		1: {0, 1}, 100: {1, 2}, 101: {100, 0}, 102: {101, 9}, 200: {1, 5}, 300: {200, 1}, kthreadd: {0, 0}, 50: {kthreadd, 7}, 51: {kthreadd, 5},
	}}
	if got := now.foreign(before, 100); got != 3 {
		t.Errorf("foreign = %v s, want 3: two of 200 and one of 300", got)
	}
	if got := now.foreign(before, 1); got != 0 {
		t.Errorf("foreign = %v s, want 0 where all are descendants", got)
	}
}

// TestWatch: a child of this process is none of the others.
func TestWatch(t *testing.T) {
	stop, err := watch()
	must.OK(t, err)
	child := exec.CommandContext(t.Context(), "sleep", "60")
	must.OK(t, child.Start())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	fs, err := procfs.NewDefaultFS()
	must.OK(t, err)
	now, err := look(fs)
	must.OK(t, err)
	if !now.descends(child.Process.Pid, os.Getpid()) || now.descends(os.Getpid(), child.Process.Pid) {
		t.Error("the child is not told from its parent")
	}
	got, err := stop()
	if err != nil || got.foreign < 0 || got.stolen < 0 {
		t.Errorf("watch = %+v, %v, want what others took", got, err)
	}
}
