// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// The bars of what a pod and a packet cost.
const (
	addMost     = 10.0 // ms, median
	addOver     = 1.2  // by the reference plugin's
	crowdOver   = 1.0  // all done, by the reference plugin's
	addDrift    = 1.5  // last 20 by first 20
	rssOver     = 1.2  // by the reference plugin's
	memoryMost  = 80 << 10
	memoryIFB   = 64 << 10
	memoryFrom  = 100 // pods: fewer are within the kernel's own steps
	packetMost  = 60.0
	packetEPYC  = 66.0 // on that processor
	packetOver  = 1.3
	largestCPUs = 2 // for which the bar of memory is meant
	// Processor time for each Gbit of a limited pod, by the tuned plugin's: out of a pod of 100M its queue is 25 ms.
	processorOut  = 1.5
	processorMost = 1.1
	// otherWork is from how many cores of others' on such a sample decides nothing.
	otherWork = 0.05
)

// processor: what a limited pod's bulk costs the machine, beside the reference plugin's in the same run.
func (b *barred) processor(c *spec.Cell) {
	if c.Phase.Kind != spec.Podweir || c.Phase.Keys["type"] != "" {
		return
	}
	most := processorMost
	if !into(c) && c.Rate <= ownWaitFrom {
		most = processorOut
	}
	bar := b.relative(c, b.tuned(), processorKind, "processor time per Gbit relative to the tuned plugin", "machine_cores_per_gbit", most)
	for i := range b.r.Samples {
		s := &b.r.Samples[i]
		if bar != nil && s.Foreign > otherWork && s.Cell.Workload.Name == c.Workload.Name && s.Cell.Rate == c.Rate {
			bar.Undecided = true
		}
	}
}

func (b *barred) addition(c *spec.Cell) {
	if c.Phase.Kind != spec.Podweir {
		return
	}
	b.atMost(c, addKind, "median", "%.2f ms", b.mean(c, "add_p50_ms"), addMost)
	b.relative(c, b.shipped(), addOverKind, "median relative to the reference plugin", "add_p50_ms", addOver)
	b.relative(c, b.shipped(), crowdKind, "50 at once, all done, relative to the reference plugin", "add_at_once_whole_ms", crowdOver)
	b.relative(c, b.shipped(), crowdKind, "100 at once, all done, relative to the reference plugin", "add_at_once_100_whole_ms", crowdOver)
	b.ifMeasured(c, addDriftKind, "last 20 pods relative to the first 20", "%.2f", b.mean(c, "add_last_by_first_ratio"), addDrift)
	rss := b.mean(c, "add_rss_p50_bytes") / b.other(c, b.shipped(), "add_rss_p50_bytes")
	b.ifMeasured(c, rssKind, "peak RSS relative to the reference plugin", "%.2f", rss, rssOver)
}

// relative: at most so many times another phase's, by the interval of the ratio; nil if there is none.
func (b *barred) relative(c *spec.Cell, to string, k Kind, what, metric string, most float64) *Bar {
	reference := *c
	reference.Phase.Name = to
	d, ok := stats.Different(values(b.r, &reference, metric), values(b.r, c, metric))
	if !ok {
		return nil
	}
	bar := b.add(d.Low <= most, c, what, fmt.Sprintf("x %.3f (95 %%: %.3f to %.3f)", d.Ratio, d.Low, d.High), fmt.Sprintf("at most %.1f", most))
	bar.Undecided = d.Low <= most && most < d.High
	bar.of(k, d.Ratio)
	return bar
}

func (b *barred) memory(c *spec.Cell) {
	if c.Phase.Kind != spec.Podweir || c.Workload.Pods < memoryFrom || b.r.Campaign.Machine.CPUs > largestCPUs {
		return
	}
	most := float64(memoryMost)
	if c.Phase.Keys["ingressPlace"] == "ifb" {
		most += memoryIFB
	}
	if counted := b.mean(c, "memory_slots_bytes"); !(counted > 0) {
		return // of a rig that did not count slots where an earlier pod had made the slab
	}
	b.atMost(c, memoryKind, "kernel memory per pod", "%.1f KiB", b.mean(c, "memory_total_bytes")/1024, most/1024)
}

func (b *barred) packets(c *spec.Cell) {
	most := packetMost
	if strings.Contains(b.r.Campaign.Machine.CPU, "EPYC") {
		most = packetEPYC
	}
	for _, name := range metricsOf(b.r, c) {
		got := b.mean(c, name)
		switch {
		case strings.HasSuffix(name, "_light_cost_ns"):
			b.atMost(c, packetKind, strings.TrimSuffix(name, "_cost_ns"), "%.1f ns", got, most)
		case strings.HasSuffix(name, "_cost_ratio"):
			b.atMost(c, packetOverKind, strings.TrimSuffix(name, "_cost_ratio")+" by light", "%.2f", got, packetOver)
		}
	}
}
