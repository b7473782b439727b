// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"

	"github.com/podweir/podweir/e2e/step"
)

// others is processor time that was not the rig's, in cores: of processes of this
// machine, and of its host, which gave it to other machines.
type others struct{ foreign, stolen float64 }

// watch looks at the machine's processes every second until the function that it
// returns is called, which says how many cores others took: processes that are neither
// this one, nor its children, nor the kernel's. One that ends within a second is not seen.
func watch() (stop func() (others, error), err error) {
	defer step.End(&err)
	fs := step.Get(procfs.NewDefaultFS())
	first := step.Get(look(fs))
	began, last, foreign := time.Now(), first, 0.0
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ended := false; !ended; {
			select {
			case <-tick.C:
			case <-quit:
				ended = true
			}
			now, err := look(fs)
			if err != nil {
				done <- err
				return
			}
			foreign += now.foreign(last, os.Getpid())
			last = now
		}
		done <- nil
	}()
	return func() (others, error) {
		close(quit)
		if err := <-done; err != nil {
			return others{}, fmt.Errorf("watch the machine: %w", err)
		}
		elapsed := time.Since(began).Seconds()
		return others{foreign: foreign / elapsed, stolen: (last.stolen - first.stolen) / elapsed}, nil
	}, nil
}

// reading is one look at the machine.
type reading struct {
	stolen    float64 // seconds since the boot
	processes map[int]process
}

type process struct {
	parent  int
	seconds float64 // of processor time
}

func look(fs procfs.FS) (_ *reading, err error) {
	defer step.End(&err)
	stat := step.Get(fs.Stat())
	all := step.Get(fs.AllProcs())
	r := &reading{stolen: stat.CPUTotal.Steal, processes: map[int]process{}}
	for _, p := range all {
		if st, err := p.Stat(); err == nil { // else it has ended since
			r.processes[p.PID] = process{parent: st.PPID, seconds: st.CPUTime()}
		}
	}
	return r, nil
}

// kthreadd is the parent of all kernel threads.
const kthreadd = 2

// foreign is the processor time, in seconds, that others took since an earlier look:
// one that began since is counted from its start.
func (r *reading) foreign(before *reading, self int) float64 {
	sum := 0.0
	for pid, p := range r.processes {
		if !r.descends(pid, self) && !r.descends(pid, kthreadd) {
			sum += p.seconds - before.processes[pid].seconds
		}
	}
	return sum
}

// descends says whether a process is another one, or was started by it or by one that
// was.
func (r *reading) descends(pid, from int) bool {
	for pid != 0 && pid != from {
		pid = r.processes[pid].parent
	}
	return pid == from
}
