// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package page renders what the scenarios of e2e/k8s measured.
package page

import (
	"fmt"
	"strings"

	"github.com/podweir/podweir/e2e/figures"
)

// Page is one run.
type Page struct {
	// Date is the day of the run, Kernel the release, Commit git's description.
	Date, Kernel, Commit string
	// CPUs are the processors of the machine.
	CPUs int
	// Versions are those of the cluster's parts.
	Versions []Fact
	// Caps are the measurements of traffic.
	Caps []Cap
	// Facts are other numbers and observations.
	Facts []Fact
}

// Cap is what one direction of a pod carried, in wire bytes at the receiver.
type Cap struct {
	Scenario, What, Direction string
	// Bits is the cap in bits per second; 0 is none.
	Bits uint64
	// Mean is the rate in bits per second.
	Mean float64
	// WorstSecond is the fullest second as a share of the cap, and Used the
	// mean after the start.
	WorstSecond, Used float64
	// Excess is by how many bytes any window was above the cap.
	Excess float64
	// Tenths are the rates of each 100 ms, in Mbit/s, where they are shown.
	Tenths []float64 `json:",omitempty"`
}

// Fact is something that was seen.
type Fact struct{ Scenario, What, Value string }

// Markdown is the page for readers.
func (p *Page) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# podweir in a Kubernetes cluster, %s\n\n", p.Date)
	fmt.Fprintf(&b, "Written by `make cluster-page` from [the numbers](%s-kubernetes.json). Linux %s, %d processors, podweir %s, two nodes as containers of one machine.\n",
		p.Date, p.Kernel, p.CPUs, p.Commit)
	b.WriteString("How it is made: [Kubernetes, end to end](../contributing/kubernetes-e2e.md).\n\n")
	parts := figures.Table{Header: []string{"part", "version"}}
	for _, v := range p.Versions {
		parts.Add(v.What, v.Value)
	}
	b.WriteString(parts.Markdown())
	b.WriteString("\n## Caps\n\nWire bytes at the receiver, counted in milliseconds. One TCP flow in each direction at the same time; bars: the worst second at most " +
		"1.03 of the cap and no window above it by more than 30 ms of the cap and one packet (9,100 bytes), of which 20 ms are for processors that are busy; at least 0.9 used.\n\n")
	caps := figures.Table{Header: []string{"scenario", "state", "direction", "cap", "mean, Mbit/s", "worst second ÷ cap", "bytes above", "used"}}
	for _, c := range p.Caps {
		if c.Bits == 0 {
			caps.Add(c.Scenario, c.What, c.Direction, "none", fmt.Sprintf("%.1f", c.Mean/1e6), "", "", "")
			continue
		}
		caps.Add(c.Scenario, c.What, c.Direction, fmt.Sprintf("%dM", c.Bits/1_000_000), fmt.Sprintf("%.2f", c.Mean/1e6),
			fmt.Sprintf("%.4f", c.WorstSecond), fmt.Sprintf("%.0f", c.Excess), fmt.Sprintf("%.3f", c.Used))
	}
	b.WriteString(caps.Markdown())
	p.facts(&b)
	p.series(&b)
	return b.String()
}

func (p *Page) facts(b *strings.Builder) {
	seen := figures.Table{Header: []string{"scenario", "what", "value"}}
	for _, f := range p.Facts {
		seen.Add(f.Scenario, f.What, strings.TrimSpace(f.Value))
	}
	b.WriteString("\n## What else was seen\n\n" + seen.Markdown())
}

func (p *Page) series(b *strings.Builder) {
	for _, c := range p.Caps {
		if len(c.Tenths) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n## %s: %s, %s, cap %dM\n\nMbit/s in each 100 ms, ten to a line.\n\n```text\n", c.Scenario, c.What, c.Direction, c.Bits/1_000_000)
		for i, rate := range c.Tenths {
			end := " "
			if i%10 == 9 || i == len(c.Tenths)-1 {
				end = "\n"
			}
			fmt.Fprintf(b, "%6.2f%s", rate, end)
		}
		b.WriteString("```\n")
	}
}
