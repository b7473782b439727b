// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A goroutine that happens to be on the main thread, which does not end with
// it, gives its function another one.
func TestThreadOfItsOwnIsNotTheMainThread(t *testing.T) {
	const most = 1000
	used, hold := make(chan int, 1), make(chan struct{})
	defer close(hold)
	for range most {
		here := make(chan bool)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			isMain := unix.Gettid() == unix.Getpid()
			here <- isMain
			if isMain {
				onThreadOfItsOwn(func() { used <- unix.Gettid() })
			} else {
				<-hold
			}
		}()
		if <-here {
			if <-used == unix.Getpid() {
				t.Error("the function is on the main thread")
			}
			return
		}
	}
	t.Fatalf("none of %d goroutines came to the main thread", most)
}
