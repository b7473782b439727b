// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// mega writes a rate in Mbit/s with three significant digits.
func mega(bitsPerSec float64) string { return digits(bitsPerSec / 1e6) }

// milli writes a time in ms with three significant digits.
func milli(ms float64) string { return digits(ms) }

func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// introduce says what is about to happen.
func (d *demo) introduce() {
	fmt.Fprintf(d.out, `podweir demo: one pod, made by ptp + host-local and one chained plugin, is loaded with
a bulk TCP flow in each direction (iperf3, %s) and small HTTP requests beside them.
A second, unshaped pod gets the same small requests at the same time: the bystander.
Kernel %s, %d CPUs, %s. Takes about 2.5 minutes; Ctrl-C cleans up.

`, d.report.Congestion, d.report.Machine.Kernel, d.report.Machine.CPUs, d.report.Machine.CPU)
}

// table prints measured values only; "-" means not measured or not applicable.
func (d *demo) table() {
	// tabwriter's error is the writer's: the terminal is gone, nothing to do.
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\t\telephants\ton the wire\tworst 1 s\tworst 1 s\tclosed loop\tlight flows\tbystander\tkept conn.\tbystander\tresent\tkernel\t")
	fmt.Fprintln(w, "cap\tcase\tout / in\tout / in\t÷ cap\tfrom start\trps\tp50 / p99\tp99\tp99\tp99\tper 10 s\tKiB/pod\t")
	fmt.Fprintln(w, "\t\tMbit/s\tMbit/s\tout / in\t÷ cap\t\tms\tms\tms\tms\tout / in\t\t")
	last := ""
	for _, r := range d.report.Rows {
		name := capName(r.CapBitRate)
		if name == last {
			name = ""
		} else {
			last = name
		}
		fmt.Fprintln(w, strings.Join(r.cells(name), "\t")+"\t")
	}
	_ = w.Flush()
	d.failures()
}

func (r *row) cells(name string) []string {
	memory := "-"
	if r.Memory != nil {
		memory = fmt.Sprintf("%.0f", r.Memory.Total)
	}
	return []string{
		name, "(" + r.Case + ") " + r.Title,
		mega(r.Egress.ElephantBitRate) + " / " + mega(r.Ingress.ElephantBitRate),
		mega(r.Egress.WireBitRate) + " / " + mega(r.Ingress.WireBitRate),
		r.ofCap(r.Egress.WireSpread[2], r.Ingress.WireSpread[2]),
		r.ofCap(r.Egress.WorstSecondFromStart, r.Ingress.WorstSecondFromStart),
		digits(r.Closed.PerSecond),
		milli(r.Open.P50) + " / " + milli(r.Open.P99), milli(r.BystanderOpen.P99),
		milli(r.Kept.P99), milli(r.BystanderKept.P99),
		fmt.Sprintf("%.0f / %.0f", r.Egress.RetransmitsPer10s, r.Ingress.RetransmitsPer10s),
		memory,
	}
}

// ofCap writes two rates as fractions of the cap.
func (r *row) ofCap(egress, ingress float64) string {
	if r.CapBitRate == 0 {
		return "-"
	}
	part := func(v float64) string {
		if v /= float64(r.CapBitRate); v < 10 {
			return fmt.Sprintf("%.3f", v)
		}
		return digits(v)
	}
	return part(egress) + " / " + part(ingress)
}

// failures tells of requests that got no response; they count with the time
// until they were given up.
func (d *demo) failures() {
	for _, r := range d.report.Rows {
		for _, l := range []struct {
			name string
			lat  latency
		}{
			{"light flows", r.Open}, {"closed loop", r.Closed}, {"kept connection", r.Kept},
			{"bystander's light flows", r.BystanderOpen}, {"bystander's kept connection", r.BystanderKept},
		} {
			for why, n := range l.lat.Errors {
				fmt.Fprintf(d.out, "  (%s) at %s, %s: %d of %d without a response: %s\n",
					r.Case, capName(r.CapBitRate), l.name, n, l.lat.Requests, why)
			}
		}
	}
}
