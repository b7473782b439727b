// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A thread of a higher real-time priority is to the watch what the machine below
// is: it takes the processor away.
func TestPrivilegedProcessorsAreSeenToBeAway(t *testing.T) {
	testutil.RequireRoot(t)
	// Go interrupts what runs for 10 ms.
	const taken, least = 12 * time.Millisecond, 5 * time.Millisecond
	p, err := WatchProcessors()
	must.OK(t, err)
	took := make(chan error)
	go func() { took <- keepProcessor(taken) }()
	must.OK(t, <-took)
	if longest := p.Stop(); longest < least {
		t.Errorf("longest time away = %v, want %v or more", longest, least)
	}
}

// keepProcessor lets nobody else use the first processor of this process.
func keepProcessor(last time.Duration) error {
	runtime.LockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	if err := takeProcessor(cpu, 2); err != nil {
		return err
	}
	for end := wiremeter.Now() + last; wiremeter.Now() < end; {
	}
	return nil
}
