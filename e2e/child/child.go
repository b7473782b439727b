// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package child starts programs that end with this process, whatever ends it.
package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
)

type request struct {
	cmd  *exec.Cmd
	in   *rtnl.NetNS
	done chan error
}

// requests are served by one thread that stays: the kernel takes the end of a child's thread
// for the end of the parent, and threads of Go may end.
var requests = sync.OnceValue(func() chan<- request {
	all := make(chan request)
	go func() {
		runtime.LockOSThread()
		home, err := rtnl.CurrentNetNS()
		for r := range all {
			failed := err
			if r.in == nil {
				r.in = home
			}
			if failed == nil {
				failed = unix.Setns(r.in.FD(), unix.CLONE_NEWNET)
			}
			if failed == nil {
				failed = r.cmd.Start()
			}
			r.done <- failed
		}
	}()
	return all
})

// Start starts a program in a network namespace, or in that of this process if it is nil. The
// program is killed when this process ends, and a Ctrl-C at the terminal does not reach it.
func Start(cmd *exec.Cmd, in *rtnl.NetNS) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done := make(chan error)
	requests() <- request{cmd, in, done}
	return <-done
}
