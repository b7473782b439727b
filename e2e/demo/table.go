// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/podweir/podweir/e2e/demo/result"
)

// introduce says what is about to happen.
func (d *demo) introduce() {
	fmt.Fprintf(d.out, `podweir demo: one pod, made by ptp + host-local and one chained plugin, is loaded with
a bulk TCP flow in each direction (iperf3, %s) and small HTTP requests beside them.
Cases e and f have no plugin: doubles of what Calico and Cilium set on a pod limit it.
A second, unshaped pod gets the same small requests at the same time: the bystander.
Kernel %s, %d CPUs, %s. Takes about 3.5 minutes; Ctrl-C cleans up.

`, d.report.Congestion, d.report.Machine.Kernel, d.report.Machine.CPUs, d.report.Machine.CPU)
	d.warnIfBusy()
}

// warnIfBusy tells the reader that other processes will be in the latencies.
func (d *demo) warnIfBusy() {
	if m := d.report.Machine; m.Load > float64(m.CPUs)/2 {
		fmt.Fprintf(d.out, `This machine is busy: the load average is %.1f on %d CPUs before the demo has started.
Latencies will be too long for every case; compare with the bystander.

`, m.Load, m.CPUs)
	}
}

// tableHead has one entry per column: three lines.
var tableHead = [][3]string{
	{"", "", "cap"},
	{"", "", "case"},
	{"elephants", "out / in", "Mbit/s"},
	{"on the wire", "out / in", "Mbit/s"},
	{"worst 1 s", "out / in", "÷ cap"},
	{"from", "start", "÷ cap"},
	{"light flows", "p50 / p99", "ms"},
	{"(by-", "stander)", "p99"},
	{"kept", "conn.", "p99 ms"},
	{"(by-", "stander)", "p99"},
	{"closed", "loop", "rps"},
	{"resent", "per 10 s", "out / in"},
	{"kernel", "memory", "KiB/pod"},
}

// leftColumns are text and start at the left.
const leftColumns = 2

// table prints measured values only; "-" means that there is nothing to
// measure.
func (d *demo) table() {
	var lines [][]string
	for i := range tableHead[0] {
		var line []string
		for _, column := range tableHead {
			line = append(line, column[i])
		}
		lines = append(lines, line)
	}
	last := ""
	for _, r := range d.report.Rows {
		name := result.CapName(r.CapBitRate)
		if name == last {
			name = ""
		} else {
			last = name
		}
		lines = append(lines, cells(&r, name))
	}
	writeColumns(d.out, lines)
	d.failures()
}

// writeColumns pads the cells of each column to its widest.
func writeColumns(out io.Writer, lines [][]string) {
	widths := make([]int, len(tableHead))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < leftColumns {
				cell += pad
			} else {
				cell = pad + cell
			}
			b.WriteString(cell + "  ")
		}
		fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
	}
}

func cells(r *row, name string) []string {
	e, in := &r.Egress, &r.Ingress
	return []string{
		name, "(" + r.Case + ") " + r.Name(),
		r.OutIn(result.Mega(e.ElephantBitRate), result.Mega(in.ElephantBitRate)),
		r.OutIn(result.Mega(e.WireBitRate), result.Mega(in.WireBitRate)),
		r.OutIn(r.OfCap(e.WireSpread[2]), r.OfCap(in.WireSpread[2])),
		r.OfCap(r.Worst(result.FromStart)),
		result.Milli(r.Open.P50) + " / " + result.Milli(r.Open.P99), result.Milli(r.BystanderOpen.P99),
		result.Milli(r.Kept.P99), result.Milli(r.BystanderKept.P99),
		result.Digits(r.Closed.PerSecond),
		r.Resent(),
		r.Memory.Cell(),
	}
}

// failures tells of requests that got no response; they count with the time
// until they were given up.
func (d *demo) failures() {
	for _, r := range d.report.Rows {
		for _, l := range []struct {
			name string
			lat  latency
		}{
			{"light flows", r.Open},
			{"closed loop", r.Closed},
			{"kept connection", r.Kept},
			{"bystander's light flows", r.BystanderOpen},
			{"bystander's kept connection", r.BystanderKept},
		} {
			for why, n := range l.lat.Errors {
				fmt.Fprintf(d.out, "  (%s) at %s, %s: %d of %d without a response: %s\n",
					r.Case, result.CapName(r.CapBitRate), l.name, n, l.lat.Requests, why)
			}
		}
	}
}
