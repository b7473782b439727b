// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// Processors watches whether the processors of a machine run at all. A virtual
// one may be away for milliseconds, and what it had taken from a shaper comes
// behind it that much later, together with what comes then.
type Processors struct {
	quit  atomic.Bool
	count int
	// longest is, for each processor that is no longer watched, the longest time
	// that it was away.
	longest chan time.Duration
}

// awayPause is the time between two looks at a processor.
const awayPause = time.Millisecond

// WatchProcessors starts a real-time thread on each processor that this process
// may use: nothing but the kernel's interrupts and the machine below delays it.
// It returns when all of them run; Stop must follow. It needs CAP_SYS_NICE.
func WatchProcessors() (*Processors, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("ask for the processors: %w", err)
	}
	p := &Processors{longest: make(chan time.Duration)}
	begun := make(chan error)
	var errs []error
	for cpu, left := 0, all.Count(); left > 0; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		left--
		go p.watch(cpu, begun)
		if err := <-begun; err != nil {
			errs = append(errs, err)
			continue
		}
		p.count++
	}
	if errs != nil {
		p.Stop()
		return nil, errors.Join(errs...)
	}
	return p, nil
}

// Stop ends the watch and returns the longest time for which a processor was
// away.
func (p *Processors) Stop() time.Duration {
	p.quit.Store(true)
	longest := time.Duration(0)
	for range p.count {
		longest = max(longest, <-p.longest)
	}
	return longest
}

func (p *Processors) watch(cpu int, begun chan<- error) {
	// Never unlocked: the thread ends with the function, and its priority too.
	runtime.LockOSThread()
	if err := takeProcessor(cpu, 1); err != nil {
		begun <- err
		return
	}
	longest, last := time.Duration(0), wiremeter.Now()
	begun <- nil
	for !p.quit.Load() {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(awayPause)}, nil)
		now := wiremeter.Now()
		longest, last = max(longest, now-last-awayPause), now
	}
	p.longest <- longest
}

// takeProcessor binds this thread to a processor, with a real-time priority.
func takeProcessor(cpu int, priority uint32) error {
	var own unix.CPUSet
	own.Set(cpu)
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return fmt.Errorf("bind a thread to processor %d: %w", cpu, err)
	}
	err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}, 0)
	if err != nil {
		return fmt.Errorf("make a thread a real-time one: %w", err)
	}
	return nil
}
