// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Niceness is the priority that [GoFirst] takes: a measurement goes first where
// the machine has other work, and must say so.
const Niceness = -20

// GoFirst gives this program and all that it starts the priority of [Niceness];
// restore takes it back from the session. It executes the program again if it
// does not have it yet, so it must come before anything else is done. It needs
// CAP_SYS_NICE.
func GoFirst() (restore func(), err error) {
	if err := takePriority(); err != nil {
		return nil, err
	}
	return raiseSession(), nil
}

// takePriority executes this program again with the priority: Linux keeps one for
// each thread, and what the runtime's other threads start would not have it.
func takePriority() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The system call answers 20 - nice.
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil || now == 20-Niceness {
		return err
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, Niceness); err != nil {
		return fmt.Errorf("set priority %d: %w", Niceness, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return unix.Exec(self, os.Args, os.Environ())
}

// raiseSession gives the session the priority, too: with autogroups, a
// process's own is only against others of its session. It returns what takes
// it back. Kernels without autogroups have no such file.
func raiseSession() (restore func()) {
	const file = "/proc/self/autogroup"
	write := func(nice int) { _ = os.WriteFile(file, fmt.Append(nil, nice), 0o644) }
	write(Niceness)
	return func() { write(0) }
}
