// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"fmt"
	"strings"
)

// table renders the rows of one group on one kernel.
func table(b *bytes.Buffer, g *group, kernel string, rows []row) {
	title := fmt.Sprintf("%s, %d Mbit/s, kernel %s", titles[g.name], rows[0].Cap/mbit, kernel)
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if load := rows[0].MachineLoad; load != "" {
		fmt.Fprintf(b, "Load average of the machine: %s.\n\n", load)
	}
	head := "queue | place | direction | load | "
	switch g.name {
	case "kept":
		head += "p50, ms | p99, ms | bystander p50 | bystander p99 | p99 ÷ bystander's | without an answer"
	case "order":
		head += "sent | received | out of order"
	case "memory":
		head += "KiB for each pod | slab | vmalloc | per CPU | memlock"
	default:
		head += "worst 1 s | by counter | allowed | | excess, ms | used | unshaped, Mbit/s | retransmits | CPU s/Gbit | stall, ms"
	}
	fmt.Fprintf(b, "| %s |\n|%s\n", head, strings.Repeat(" --- |", strings.Count(head, "|")+1))
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", r.Way, r.Place, r.Direction, r.Load, r.cells())
	}
}

// titles of the groups.
var titles = map[string]string{
	"caps10": "Cap and use", "caps100": "Cap and use", "caps1": "Cap and use", "caps1000": "Cap and use", "capsTop": "Cap and use at the highest rate",
	"more1": "Cap and use, bbr and large GSO", "more10": "Cap and use, bbr and large GSO", "more100": "Cap and use, bbr and large GSO",
	"kept": "A kept connection beside bulk", "order": "Order within a flow", "memory": "Kernel memory",
}

// cells are the numbers of a row, with bars between them.
func (r *row) cells() string {
	switch {
	case r.Note != "":
		return r.Note
	case r.Caps != nil:
		return r.Caps.cells(r.Cap)
	case r.Order != nil:
		return fmt.Sprintf("%d | %d | %d", r.Order.Sent, r.Order.Received, r.Order.Inversions)
	case r.Kept != nil:
		k := r.Kept
		return fmt.Sprintf("%.2f | %.2f | %.2f | %.2f | %.1f | %d of %d",
			k.P50, k.P99, k.BystanderP50, k.BystanderP99, k.P99/k.BystanderP99, k.Failed, k.Requests)
	case r.Memory != nil:
		m := r.Memory
		kib := func(n int64) float64 { return float64(n) / 1024 }
		return fmt.Sprintf("%.1f | %.1f | %.1f | %.1f | %.1f",
			kib(m.Total), kib(m.Slab), kib(m.Vmalloc), kib(m.PerCPU), kib(m.Memlock))
	}
	return ""
}

func (n *capNumbers) cells(bitsPerSec uint64) string {
	if n.Worst == 0 {
		// The unlimited pod, for its processor time.
		return fmt.Sprintf("- | - | - | - | - | %.3f | %.0f | - | %.2f | %.0f", n.Used, n.Carried/mbit, n.BusyPerGbit, n.StallMillis)
	}
	verdict := "ok"
	switch {
	case !n.offered(bitsPerSec):
		verdict = "not offered"
	case n.Worst > n.Limit:
		verdict = "above"
	}
	counter, cpu := "-", "-"
	if n.Counter > 0 {
		counter = fmt.Sprintf("%.4f", n.Counter)
	}
	if n.BusyPerGbit > 0 {
		cpu = fmt.Sprintf("%.2f", n.BusyPerGbit)
	}
	retransmits := "-"
	if n.Segments > 0 {
		retransmits = fmt.Sprintf("%.0f, %.0f, %.2f %%", n.Early, n.Late, 100*n.Late/n.Segments)
	}
	return fmt.Sprintf("%.4f | %s | %.4f | %s | %.1f | %.3f | %.0f | %s | %s | %.0f",
		n.Worst, counter, n.Limit, verdict, n.ExcessMillis, n.Used, n.Carried/mbit, retransmits, cpu, n.StallMillis)
}
