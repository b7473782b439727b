// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// What is locked here is locked on the main thread, and stays there until
// TestMain lets go of it: no other way to that thread is sure.
func init() { runtime.LockOSThread() }

// onMain and given are the threads of TestMain, and of a function that it asked
// for one of its own.
var onMain, given int

// askOnTheMainThread is for TestMain to call.
func askOnTheMainThread() {
	onMain = unix.Gettid()
	onThreadOfItsOwn(func() { given = unix.Gettid() })
	runtime.UnlockOSThread()
}

// A goroutine that happens to be on the main thread, which does not end with
// it, gives its function another one.
func TestThreadOfItsOwnIsNotTheMainThread(t *testing.T) {
	if onMain != unix.Getpid() {
		t.Fatalf("it was requested on thread %d, want the main thread %d", onMain, unix.Getpid())
	}
	if given == 0 || given == unix.Getpid() {
		t.Errorf("the function was on thread %d, want one that is not the main thread", given)
	}
}
