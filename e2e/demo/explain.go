// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"

	"github.com/podweir/podweir/e2e/demo/result"
)

// find returns the row of a case at a cap, nil if it was not measured.
func (d *demo) find(key string, bitsPerSec uint64) *row {
	for i, r := range d.report.Rows {
		if r.Case == key && r.CapBitRate == bitsPerSec {
			return &d.report.Rows[i]
		}
	}
	return nil
}

// explain prints the table, what it shows in plain words, and what to do next.
func (d *demo) explain(jsonPath string) {
	fmt.Fprintln(d.out)
	d.table()
	load := d.report.Load
	fmt.Fprintf(d.out, `
"out" is what the pod sends, "in" what it receives. "on the wire" and "worst 1 s" are counted by a
separate BPF meter at the receiver, behind the shaper, headers included: the former beside the light
flows, the latter in all of the run after %g s of warm-up; "from start" includes the warm-up.
Light flows: %g new connections per second, 6 kB responses, timed from when each was due.
Kept conn.: %g small requests per second on one connection. Closed loop: %d clients, new connections.
Kernel KiB/pod: slab + vmalloc + per-CPU memory that the plugin's ADD costs.

`, load.WarmUpSeconds, load.OpenLoopPerSecond, load.KeptPerSecond, load.ClosedLoopClients)
	seen := map[uint64]bool{}
	for _, r := range d.report.Rows {
		if r.CapBitRate == 0 || seen[r.CapBitRate] {
			continue
		}
		seen[r.CapBitRate] = true
		d.compare(r.CapBitRate)
	}
	fmt.Fprintf(d.out, `
All numbers with their spreads: %s (%.0f s).
Next:  make test                  what a change must pass: linters, units, the kernel, real traffic
       make bench                 cost per packet, memory and ADD time
       bin/podweir attach --help  shape a network namespace of your own by hand
`, jsonPath, d.report.Seconds)
}

// compare says in words what the rows of one cap show.
func (d *demo) compare(limit uint64) {
	reference, strict := d.find("b", limit), d.find("c", limit)
	if reference == nil || strict == nil {
		return
	}
	name := result.CapName(limit)
	fmt.Fprintf(d.out, "At %s, what you have just seen: while a bulk flow fills the pod's cap in each direction,\n", name)
	fmt.Fprintf(d.out, "  a small request took %s ms (p99) with the bandwidth plugin and %s ms with podweir strict (bystander: %s ms);\n",
		result.Milli(reference.Open.P99), result.Milli(strict.Open.P99), result.Milli(strict.BystanderOpen.P99))
	fmt.Fprintf(d.out, "  a request on a kept connection took %s ms (p99) and %s ms (bystander: %s ms);\n",
		result.Milli(reference.Kept.P99), result.Milli(strict.Kept.P99), result.Milli(strict.BystanderKept.P99))
	worst := strict.Worst(result.FromStart) / float64(limit)
	theirs := reference.Worst(result.FromStart) / float64(limit)
	fmt.Fprintf(d.out, "  the worst second on the wire held %s × the cap with the bandwidth plugin (containerd hands it a burst of\n", result.Digits(theirs))
	fmt.Fprintf(d.out, "  512 MB), and %.3f × with podweir strict.\n", worst)
	if tuned := d.find("b2", limit); tuned != nil {
		fmt.Fprintf(d.out, "  Tuned by hand to a burst of 64 kB, the bandwidth plugin took %s ms (small request) and %s ms (kept connection).\n",
			result.Milli(tuned.Open.P99), result.Milli(tuned.Kept.P99))
	}
	for _, rival := range []struct{ key, name string }{{"e", "Calico's QoS controls (burst 4 Gibit)"}, {"f", "Cilium's manager (a policer for ingress)"}} {
		if r := d.find(rival.key, limit); r != nil {
			fmt.Fprintf(d.out, "  With %s: %s ms and %s ms, the worst second %s × the cap.\n", rival.name,
				result.Milli(r.Open.P99), result.Milli(r.Kept.P99), result.Digits(r.Worst(result.FromStart)/float64(limit)))
		}
	}
	if elephants := d.find("d", limit); elephants != nil {
		fmt.Fprintf(d.out, "  With policy elephants only the bulk flows are capped: %s ms and %s ms, %s requests/s in the closed loop.\n",
			result.Milli(elephants.Open.P99), result.Milli(elephants.Kept.P99), result.Digits(elephants.Closed.PerSecond))
	}
}
