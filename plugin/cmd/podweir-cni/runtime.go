// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// A process of some milliseconds needs no names of its memory, and no goroutine that follows changes of processors.
//
//go:debug decoratemappings=0
//go:debug updatemaxprocs=0

package main

import "syscall"

// calm lets the runtime's monitor sleep for up to 1 ms instead of 0.07. Whenever it finds a system call that takes
// longer than its sleep, it gives the processor to another thread, which has nothing to do, and the call's
// thread waits to get it back. Threads change half as often during an ADD (56 times, now 32, measured).
// Where this does not work, ADD is only slower.
func calm() {
	dir, err := syscall.Open("/proc/self/task", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = syscall.Close(dir) }()
	var entries [256]byte
	n, err := syscall.ReadDirent(dir, entries[:])
	if err != nil {
		return
	}
	// The kernel lists threads by their age, and the monitor is the first that the runtime starts.
	_, _, threads := syscall.ParseDirent(entries[:n], 2, nil)
	if len(threads) < 2 {
		return
	}
	slack, err := syscall.Open("/proc/"+threads[1]+"/timerslack_ns", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = syscall.Write(slack, []byte("1000000"))
	_ = syscall.Close(slack)
}

// room has the caller's stack grow to its final size, 64 kB, at once. Otherwise it grows by doubling, and each time
// the runtime copies it: 4.6 % of the samples of ADD's profile.
// The memory is never used; the compiler must not know that.
//
//go:noinline
func room(use bool) {
	if use {
		var memory [40 << 10]byte
		touch(&memory)
	}
}

//go:noinline
func touch(memory *[40 << 10]byte) { memory[0] = 1 }
