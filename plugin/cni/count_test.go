// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// counts are system calls of a process and bytes that it reads.
type counts struct {
	// calls are the calls that counted lists. bytes are the sizes of netlink messages and of
	// names of files that the kernel returned.
	calls, bytes int
	by           map[uint64]int
}

// counted are the calls by which ADD finds something out or changes it. The Go runtime makes
// none of them again and again.
var counted = []uint64{
	unix.SYS_OPENAT, unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_BPF, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SETNS,
}

// No verb makes a system call for each other pod, and none even reads what the kernel says of them.
// Calls are counted because times differ on a busy machine.
func TestPrivilegedVerbsAskNothingOfOtherPods(t *testing.T) {
	const (
		// running is how many other pods have devices, recorded how many have a record only.
		running, recorded = 8, 120
		// nameBytes is the least that the kernel returns for a file in a directory, qdiscBytes for a qdisc.
		nameBytes, qdiscBytes = 24, 100
	)
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	first := n.newPod(t)
	first.must(t, "ADD", first.conf(both(nil))) // loads what all pods share
	verbs := []string{"ADD", "CHECK", "DEL"}
	few, many := make(map[string]counts), make(map[string]counts)
	ask := func(of map[string]counts) {
		p := n.newPod(t)
		for _, verb := range verbs {
			of[verb] = p.count(t, verb)
		}
	}
	ask(few)
	for range running {
		p := n.newPod(t)
		p.must(t, "ADD", p.conf(both(nil)))
	}
	record := must.Get(datapath.ReadRecord(filepath.Join(n.paths.Pins, "net", first.container+",eth0", "eth0")))(t)
	for i := range recorded {
		dir := filepath.Join(n.paths.Pins, "net", fmt.Sprintf("recorded-%d,eth0", i), "eth0")
		must.OK(t, os.MkdirAll(dir, 0o700))
		must.OK(t, datapath.WriteRecord(dir, record))
	}
	ask(many)
	for _, verb := range verbs {
		few, many := few[verb], many[verb]
		t.Logf("calls of %s beside 1 pod: %d, %d bytes read (%v); beside %d: %d, %d bytes read (%v)",
			verb, few.calls, few.bytes, few.by, 1+running+recorded, many.calls, many.bytes, many.by)
		if more := many.calls - few.calls; more >= running {
			t.Errorf("%s makes %d calls more beside %d pods more", verb, more, running+recorded)
		}
		if more := many.bytes - few.bytes; more >= min(nameBytes*recorded, qdiscBytes*running) {
			t.Errorf("%s reads %d bytes more beside %d pods more", verb, more, running+recorded)
		}
	}
}

// count runs a verb as a process of its own and counts what it asks.
func (p *pod) count(t *testing.T, verb string) counts {
	t.Helper()
	stdin, stdout := filepath.Join(t.TempDir(), "stdin"), filepath.Join(t.TempDir(), "stdout")
	must.OK(t, os.WriteFile(stdin, p.conf(both(nil)).json(t), 0o600))
	in := must.Get(os.Open(stdin))(t)
	defer func() { _ = in.Close() }()
	out := must.Get(os.Create(stdout))(t)
	defer func() { _ = out.Close() }()
	c := counts{by: make(map[uint64]int)}
	err := p.node.Do(func() error { // on the one thread that may trace
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"podweir-cni"}, &syscall.ProcAttr{
			Env: p.env(verb), Files: []uintptr{in.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Ptrace: true},
		})
		if err != nil {
			return err
		}
		return c.trace(pid)
	})
	said, unread := os.ReadFile(stdout)
	if err != nil || unread != nil || verb == "ADD" && len(said) == 0 {
		t.Fatalf("%s: %v, and prints %q, %v", verb, err, said, unread)
	}
	return c
}

// callInfo is struct ptrace_syscall_info of linux/ptrace.h: at the entry of a call its number, at its
// end what it returns.
type callInfo struct {
	op    uint8
	_     [23]byte
	value int64
	_     [56]byte
}

// The operations of callInfo.
const (
	callEntry = 1
	callExit  = 2
)

// trace counts until the process ends. The calling thread has started it.
func (c *counts) trace(pid int) error {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACECLONE|syscall.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return err
	}
	under := make(map[int]uint64) // the call that a thread is in
	for thread := pid; ; {
		signal := 0
		if status.Stopped() {
			switch s := status.StopSignal(); s {
			case syscall.SIGTRAP | 0x80:
				if err := c.note(thread, under); err != nil {
					return err
				}
			case syscall.SIGTRAP, syscall.SIGSTOP: // a thread begins
			default:
				signal = int(s)
			}
			if err := syscall.PtraceSyscall(thread, signal); err != nil && err != syscall.ESRCH {
				return err
			}
		}
		var err error
		thread, err = syscall.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		if err != nil {
			return err
		}
		if thread == pid && (status.Exited() || status.Signaled()) {
			if status.ExitStatus() != 0 {
				return fmt.Errorf("the process ended with %d", status.ExitStatus())
			}
			return nil
		}
	}
}

// note counts a call at its beginning, and what it returned at its end.
func (c *counts) note(thread int, under map[int]uint64) error {
	var info callInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno == unix.ESRCH {
		return nil // another thread ended the process meanwhile
	}
	if errno != 0 {
		return errno
	}
	switch info.op {
	case callEntry:
		under[thread] = uint64(info.value)
		if slices.Contains(counted, under[thread]) {
			c.calls++
			c.by[under[thread]]++
		}
	case callExit:
		if n := under[thread]; info.value > 0 && (n == unix.SYS_RECVFROM || n == unix.SYS_GETDENTS64) {
			c.bytes += int(info.value)
		}
	}
	return nil
}
