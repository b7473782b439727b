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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
)

// report is demo.json. All rates are in bits per second, times in
// milliseconds, memory in KiB.
type report struct {
	Machine Machine `json:"machine"`
	// Far has the clients, if they are on another machine than the pods.
	Far        *peerMachine `json:"far,omitempty"`
	Started    string       `json:"started"`
	Seconds    float64      `json:"seconds"`
	Congestion string       `json:"congestionControl"`
	Load       loadPlan     `json:"load"`
	Rows       []row        `json:"rows"`
}

// Machine is what a number depends on.
type Machine struct {
	Kernel    string `json:"kernel"`
	CPU       string `json:"cpu"`
	CPUs      int    `json:"cpus"`
	Go        string `json:"go"`
	Git       string `json:"git"`
	GitDirty  bool   `json:"gitDirty"`
	MemoryKiB int64  `json:"memoryKiB"`
	// Load is the load average of the last minute before the start.
	Load float64 `json:"loadAverage"`
}

// peerMachine is the machine at the other end of the wire.
type peerMachine struct {
	Machine
	// ClockDrift is by what part of the time its clock went faster.
	ClockDrift float64 `json:"clockDrift"`
}

// loadPlan is what was offered in every row.
type loadPlan struct {
	WarmUpSeconds       float64 `json:"warmUpSeconds"`
	OpenLoopSeconds     float64 `json:"openLoopSeconds"`
	ClosedLoopSeconds   float64 `json:"closedLoopSeconds"`
	OpenLoopPerSecond   float64 `json:"openLoopPerSecond"`
	KeptPerSecond       float64 `json:"keptPerSecond"`
	ClosedLoopClients   int     `json:"closedLoopClients"`
	ResponseBytes       int     `json:"responseBytes"`
	RequestTimeoutMilli float64 `json:"requestTimeoutMilli"`
}

// row is one scenario at one cap.
type row struct {
	Case       string  `json:"case"`
	Title      string  `json:"title"`
	CapBitRate uint64  `json:"capBitRate"` // 0 = no cap
	Egress     flow    `json:"egress"`
	Ingress    flow    `json:"ingress"`
	Open       latency `json:"openLoop"`
	Closed     latency `json:"closedLoop"`
	Kept       latency `json:"kept"`
	// The unshaped bystander pod, at the same time.
	BystanderOpen latency `json:"bystanderOpenLoop"`
	BystanderKept latency `json:"bystanderKept"`
	// Memory is what the chained plugin costs the kernel per pod; nil in case
	// (a), which has none.
	Memory *memory `json:"memoryPerPod,omitempty"`
}

// flow is one direction of a pod.
type flow struct {
	// ElephantBitRate is the receiver's payload rate beside the open loop.
	ElephantBitRate float64 `json:"elephantBitRate"`
	// ElephantSpread are minimum, median and maximum of half seconds.
	ElephantSpread [3]float64 `json:"elephantSpread"`
	// WireBitRate is everything the receiver's device got beside the open
	// loop, WireBitRateClosedLoop beside the closed loop.
	WireBitRate           float64 `json:"wireBitRate"`
	WireBitRateClosedLoop float64 `json:"wireBitRateClosedLoop"`
	// WireSpread are minimum, median and maximum of all one-second windows
	// after the warm-up, with both loops.
	WireSpread [3]float64 `json:"wireSpread"`
	// WorstSecondFromStart is the maximum with the warm-up: what a burst lets
	// through at first is in it.
	WorstSecondFromStart float64 `json:"worstSecondFromStart"`
	// WorstTenSeconds is the largest rate over ten seconds after the warm-up; 0
	// if there are fewer. A machine that stalls for 50 ms and then catches up
	// adds 5 % to a second, and a tenth of that here.
	WorstTenSeconds float64 `json:"worstTenSeconds"`
	// ExcessBytes is the smallest burst b with bytes ≤ cap × t + b in every
	// window after the warm-up.
	ExcessBytes float64 `json:"excessBytes"`
	// Retransmits are segments sent again after the warm-up, of Segments.
	Retransmits        float64 `json:"retransmits"`
	RetransmitsPer10s  float64 `json:"retransmitsPer10s"`
	RetransmitsPercent float64 `json:"retransmitsPercent"`
	RetransmitsWarmUp  float64 `json:"retransmitsWarmUp"`
}

// latency is one latency load.
type latency struct {
	Requests  int            `json:"requests"`
	Errors    map[string]int `json:"errors,omitempty"`
	PerSecond float64        `json:"perSecond"`
	P50       float64        `json:"p50"`
	P90       float64        `json:"p90"`
	P99       float64        `json:"p99"`
	Max       float64        `json:"max"`
}

func newLatency(l *lab.Latencies) latency {
	ms := func(q float64) float64 { return float64(l.Quantile(q)) / float64(time.Millisecond) }
	return latency{
		Requests: len(l.Samples), Errors: l.Errors, PerSecond: l.PerSecond(),
		P50: ms(0.5), P90: ms(0.9), P99: ms(0.99), Max: ms(1),
	}
}

// memory is per pod, in KiB.
type memory struct {
	Total   float64 `json:"totalKiB"`
	Slab    float64 `json:"slabKiB"`
	Vmalloc float64 `json:"vmallocKiB"`
	PerCPU  float64 `json:"perCPUKiB"`
	Memlock float64 `json:"bpfMemlockKiB"`
	Pods    int     `json:"pods"`
}

// plausible says whether the difference can be the plugin's: it is not less
// than what the kernel itself accounts to BPF objects, and not negative.
func (m *memory) plausible() bool { return m.Total >= m.Memlock && m.Total >= 0 }

func newMemory(m lab.Memory, pods int) *memory {
	kib := func(b int64) float64 { return float64(b) / 1024 }
	return &memory{
		Total: kib(m.Total()), Slab: kib(m.Slab), Vmalloc: kib(m.Vmalloc),
		PerCPU: kib(m.PerCPU), Memlock: kib(m.Memlock), Pods: pods,
	}
}

// describeMachine leaves empty what it cannot read.
func describeMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
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

func (r *report) write(path string) error {
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
