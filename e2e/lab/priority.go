// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// niceness is the priority that [GoFirst] takes.
const niceness = -20

// GoFirst gives this program and all that it starts the highest priority, with its whole
// process group, since Linux keeps one for each thread; restore takes it back. A measurement
// goes first where the machine has other work, and must say so. It needs CAP_SYS_NICE.
func GoFirst() (restore func(), err error) {
	set := func(nice int) error {
		// With autogroups, a process's own priority is only against others of its session.
		// Kernels without them have no such file.
		_ = os.WriteFile("/proc/self/autogroup", fmt.Append(nil, nice), 0o644)
		return unix.Setpriority(unix.PRIO_PGRP, 0, nice)
	}
	if err := set(niceness); err != nil {
		return nil, fmt.Errorf("set priority %d: %w", niceness, err)
	}
	return func() { _ = set(0) }, nil
}
