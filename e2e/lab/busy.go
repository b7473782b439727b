// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"time"

	"github.com/prometheus/procfs"

	"github.com/podweir/podweir/e2e/step"
)

// Work is what the processors of the machine have done since its boot.
type Work struct {
	// At is when that was read, in CLOCK_MONOTONIC.
	At time.Duration
	// BusySeconds is the time in which they were neither idle nor with other machines. Linux measures both, to 10 ms
	// here; what it was busy with it samples, and misses what is short.
	BusySeconds float64
}

// Worked reads it.
func Worked() (_ Work, err error) {
	defer step.End(&err)
	fs := step.Get(procfs.NewDefaultFS())
	stat, err := fs.Stat()
	now, not := monotonic(), stat.CPUTotal.Idle+stat.CPUTotal.Iowait+stat.CPUTotal.Steal
	return Work{At: now, BusySeconds: float64(len(stat.CPU))*now.Seconds() - not}, err
}

// Processor is the name of the machine's processor, as far as it says.
func Processor() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return "unknown"
	}
	all, err := fs.CPUInfo()
	if err != nil || len(all) == 0 || all[0].ModelName == "" {
		return "unknown"
	}
	return all[0].ModelName
}
