// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package sampler reads, every second, the processor time and memory of every
// process and of the kernel, and writes them as OpenMetrics.
package sampler

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/podweir/podweir/tools/perfrig/record"
)

// Interval is between two readings.
const Interval = time.Second

// Sampler watches runs; it writes one file for each into its directory.
type Sampler struct {
	dir string
	fs  procfs.FS
}

// New makes a sampler; dir is made if need be. An empty dir writes no files.
func New(dir string) (*Sampler, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	fs, err := procfs.NewFS(procfs.DefaultMountPoint)
	return &Sampler{dir: dir, fs: fs}, err
}

// process is what one reading says of a process.
type process struct {
	pid, parent int
	name        string
	user, sys   float64 // seconds
	resident    float64 // bytes
	kernel      bool
}

// reading is one look at the machine.
type reading struct {
	at        time.Time
	cpu       procfs.CPUStat
	memory    procfs.Meminfo
	processes map[int]process
}

// kthreadd is the parent of all kernel threads.
const kthreadd = 2

func (s *Sampler) read() (*reading, error) {
	r := &reading{at: time.Now(), processes: map[int]process{}}
	stat, err := s.fs.Stat()
	if err != nil {
		return nil, err
	}
	r.cpu = stat.CPUTotal
	if r.memory, err = s.fs.Meminfo(); err != nil {
		return nil, err
	}
	all, err := s.fs.AllProcs()
	if err != nil {
		return nil, err
	}
	const userHz = 100 // USER_HZ of Linux, on every machine
	for _, p := range all {
		st, err := p.Stat()
		if err != nil {
			continue // it has ended since
		}
		r.processes[p.PID] = process{
			pid: p.PID, parent: st.PPID, name: st.Comm,
			user: float64(st.UTime) / userHz, sys: float64(st.STime) / userHz,
			resident: float64(st.ResidentMemory()),
			kernel:   p.PID == kthreadd || st.PPID == kthreadd,
		}
	}
	return r, nil
}

// Watch reads until the function that it returns is called, which writes the
// file and says how many cores others took: processes that are neither this one, nor its
// children, nor the kernel's, and the host. A process that ends within a second is not
// seen.
func (s *Sampler) Watch(runID string) (stop func() (record.Others, error), err error) {
	first, err := s.read()
	if err != nil {
		return nil, err
	}
	readings := []*reading{first}
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(Interval)
		defer tick.Stop()
		for {
			last := false
			select {
			case <-tick.C:
			case <-quit:
				last = true
			}
			r, err := s.read()
			if err != nil {
				done <- err
				return
			}
			readings = append(readings, r)
			if last {
				done <- nil
				return
			}
		}
	}()
	return func() (record.Others, error) {
		close(quit)
		if err := <-done; err != nil {
			return record.Others{}, fmt.Errorf("watch the machine: %w", err)
		}
		return record.Others{
			Foreign: foreign(readings, os.Getpid()), Stolen: stolen(readings),
		}, s.write(runID, readings)
	}, nil
}

// foreign is the processor time of others, in cores.
func foreign(readings []*reading, ours ...int) float64 {
	sum := 0.0
	for i := 1; i < len(readings); i++ {
		was, is := readings[i-1], readings[i]
		known := descendants(is.processes, ours...)
		for pid, p := range is.processes {
			if p.kernel || known[pid] {
				continue
			}
			// A process that began since is counted from its start.
			sum += p.user + p.sys - was.processes[pid].user - was.processes[pid].sys
		}
	}
	return inCores(sum, readings)
}

// stolen is what the host took, in cores.
func stolen(readings []*reading) float64 {
	return inCores(readings[len(readings)-1].cpu.Steal-readings[0].cpu.Steal, readings)
}

// inCores is so many seconds of processor time as a part of the time that passed.
func inCores(seconds float64, readings []*reading) float64 {
	elapsed := readings[len(readings)-1].at.Sub(readings[0].at).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return seconds / elapsed
}

// descendants are processes and all that they have started.
func descendants(all map[int]process, roots ...int) map[int]bool {
	ours := map[int]bool{}
	for _, root := range roots {
		ours[root] = true
	}
	for found := true; found; {
		found = false
		for pid, p := range all {
			if ours[p.parent] && !ours[pid] {
				ours[pid], found = true, true
			}
		}
	}
	return ours
}

func (s *Sampler) write(runID string, readings []*reading) (err error) {
	if s.dir == "" {
		return nil
	}
	name := strings.NewReplacer("/", "_", "#", "_").Replace(runID) + ".openmetrics"
	f, err := os.Create(filepath.Join(s.dir, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return export(f, runID, readings)
}
