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
	"github.com/podweir/podweir/e2e/step"
)

// Processors watches whether the processors of a machine run at all. A virtual
// one may be away for milliseconds, and what it had taken from a shaper comes
// behind it that much later, together with what comes then.
type Processors struct {
	quit  atomic.Bool
	count int
	// absences has those of each processor that is no longer watched.
	absences chan absences
}

// absences are when one processor was away.
type absences struct{ longest, sum time.Duration }

const (
	// awayPause is the time between two looks at a processor.
	awayPause = time.Millisecond
	// leastAway is the least time that is not the delay of a timer.
	leastAway = time.Millisecond
)

// WatchProcessors starts a real-time thread on each processor that this process
// may use: nothing but the kernel's interrupts and the machine below delays it.
// It returns when all of them run; Stop must follow. It needs CAP_SYS_NICE.
func WatchProcessors() (*Processors, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("ask for the processors: %w", err)
	}
	p := &Processors{absences: make(chan absences)}
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
	longest, _ := p.StopSum()
	return longest
}

// StopSum is Stop, and returns also for how long the processor that was away most was so
// in all.
func (p *Processors) StopSum() (longest, sum time.Duration) {
	p.quit.Store(true)
	for range p.count {
		a := <-p.absences
		longest, sum = max(longest, a.longest), max(sum, a.sum)
	}
	return longest, sum
}

func (p *Processors) watch(cpu int, begun chan<- error) {
	// Never unlocked: the thread ends with the function, and its priority too.
	runtime.LockOSThread()
	if err := takeProcessor(cpu, 1); err != nil {
		begun <- err
		return
	}
	var a absences
	last := wiremeter.Now()
	begun <- nil
	for !p.quit.Load() {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(awayPause)}, nil)
		now := wiremeter.Now()
		away := now - last - awayPause
		if last = now; away >= leastAway {
			a.longest, a.sum = max(a.longest, away), a.sum+away
		}
	}
	p.absences <- a
}

// takeProcessor binds this thread to a processor, with a real-time priority.
func takeProcessor(cpu int, priority uint32) (err error) {
	defer step.End(&err)
	var own unix.CPUSet
	own.Set(cpu)
	step.Say(unix.SchedSetaffinity(0, &own), "bind a thread to processor %d", cpu)
	step.Say(unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}, 0), "make a thread a real-time one")
	return nil
}
