// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/demo/result"
	"github.com/podweir/podweir/e2e/lab"
)

// The parts of a report, which package result defines.
type (
	report   = result.Report
	row      = result.Row
	flow     = result.Flow
	latency  = result.Latency
	memory   = result.Memory
	loadPlan = result.Load
	// Machine is what a number depends on.
	Machine = result.Machine
)

func newLatency(l *lab.Latencies) latency {
	ms := func(q float64) float64 { return float64(l.Quantile(q)) / float64(time.Millisecond) }
	return latency{
		Requests: len(l.Samples), Errors: l.Errors, PerSecond: l.PerSecond(),
		P50: ms(0.5), P90: ms(0.9), P99: ms(0.99), Max: ms(1),
	}
}

func newMemory(m lab.Memory, pods int) *memory {
	kib := func(b int64) float64 { return float64(b) / 1024 }
	return &memory{
		Total: kib(m.Total()), Slab: kib(m.Slab), Vmalloc: kib(m.Vmalloc),
		PerCPU: kib(m.PerCPU), Memlock: kib(m.Memlock), Pods: pods,
	}
}

// describeMachine leaves empty what it cannot read.
func describeMachine() Machine {
	m := Machine{CPU: lab.Processor(), CPUs: runtime.NumCPU(), Go: runtime.Version()}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryKiB = int64(info.Totalram) * int64(info.Unit) >> 10
		m.Load = float64(info.Loads[0]) / (1 << 16) // SI_LOAD_SHIFT, linux/sysinfo.h
	}
	if out, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil {
		m.Git = string(bytes.TrimSpace(out))
	}
	if out, err := exec.Command("git", "status", "--porcelain").Output(); err == nil {
		m.GitDirty = len(out) > 0
	}
	return m
}

// writeReport writes the numbers to a file, or to stdout if it is "-".
func writeReport(r *report, path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if path == "-" {
		_, err := os.Stdout.Write(raw)
		return err
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
