// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/lab"
)

const (
	memoryPods   = 100
	memoryRounds = 3
	// The bars are for two processors (design.md, ruling 17).
	memoryBar    = 128 << 10
	memoryIFBBar = 64 << 10
)

func benchMemory(ctx context.Context, rep *report) (err error) {
	l, err := lab.New(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	t := rep.table("Kernel memory per pod",
		fmt.Sprintf("KiB per pod, both directions, by difference over %d pods on %d processors, %d rounds; the row is the round with the median total. Slab, vmalloc and per-CPU do not overlap and are the total; memlock is the kernel's own account of BPF objects, a part of them.",
			memoryPods, runtime.NumCPU(), memoryRounds),
		"plugin", "total", "slab", "vmalloc", "per-CPU", "memlock", "totals of all rounds")
	variants := []struct {
		name  string
		bar   int64
		entry lab.Entry
	}{
		{"podweir auto", memoryBar, lab.PodweirEntry(nil)},
		{"podweir with an ifb", memoryBar + memoryIFBBar, lab.PodweirEntry(map[string]any{"ingressPlace": "ifb"})},
		{"reference bandwidth", 0, lab.BandwidthEntry()},
	}
	for i, v := range variants {
		network, err := l.Network(fmt.Sprintf("mem%d", i), v.entry)
		if err != nil {
			return err
		}
		var rounds []lab.Memory
		var totals []string
		for range memoryRounds {
			m, err := network.ChainMemory(ctx, memoryPods, lab.PodOptions{Bandwidth: lab.KubeletBandwidth(addCap)})
			if err != nil {
				return err
			}
			rounds = append(rounds, m)
			totals = append(totals, kib(m.Total()))
		}
		slices.SortFunc(rounds, func(a, b lab.Memory) int { return int(a.Total() - b.Total()) })
		m := rounds[len(rounds)/2]
		t.row(v.name, kib(m.Total()), kib(m.Slab), kib(m.Vmalloc), kib(m.PerCPU), kib(m.Memlock),
			strings.Join(totals, " "))
		if v.bar != 0 {
			rep.bar(m.Total() <= v.bar, "kernel memory per pod, "+v.name, kib(m.Total())+" KiB",
				"at most "+kib(v.bar)+" KiB")
		}
	}
	return nil
}

func kib(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1024) }
