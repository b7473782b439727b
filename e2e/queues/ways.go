// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/traffic"
)

// A way is a queue, or none, in a place.
type way struct {
	name, place string
	directions  []traffic.Direction
	// keys are those of podweir's conflist entry; nil is the tuned reference
	// plugin.
	keys map[string]any
	// from is the least cap at which there is such a queue, in bit/s.
	from uint64
}

const (
	mbit = 1_000_000
	// htbFrom is shaping.MinHTBRate.
	htbFrom = 53 * mbit
)

var (
	egress  = []traffic.Direction{traffic.Egress}
	ingress = []traffic.Direction{traffic.Ingress}
)

// ways are all queue kinds of the design in all places; those that decide most
// come first.
var ways = []way{
	{"tbf", "pod side", egress, map[string]any{"queue": "tbf"}, 0},
	{"tbf", "host side", ingress, map[string]any{"queue": "tbf"}, 0},
	{"tbf", "ifb", ingress, map[string]any{"queue": "tbf", "ingressPlace": "ifb"}, 0},
	{"htb", "pod side", egress, map[string]any{"queue": "htb"}, htbFrom},
	{"htb", "host side", ingress, map[string]any{"queue": "htb"}, htbFrom},
	{"htb", "ifb", ingress, map[string]any{"queue": "htb", "ingressPlace": "ifb"}, htbFrom},
	{"fq flat", "pod side", egress, fq("flat", ""), 0},
	{"fq flat", "host side", ingress, fq("flat", ""), 0},
	{"fq flat", "ifb", ingress, fq("flat", "ifb"), 0},
	{"fq strict", "pod side", egress, fq("strict", ""), 0},
	{"fq strict", "host side", ingress, fq("strict", ""), 0},
	{"fq strict", "ifb", ingress, fq("strict", "ifb"), 0},
	{"none", "pod side", traffic.Directions, map[string]any{"queue": "none"}, 0},
	{"reference, 64 kB", "host side", traffic.Directions, nil, 0},
}

// fqHorizon is the longest under strict: the bucket of 8 ms over lightShare.
const fqHorizon = "8ms"

func fq(policy, place string) map[string]any {
	keys := map[string]any{"queue": "fq", "policy": policy}
	if policy == "strict" {
		keys["horizon"] = fqHorizon
	}
	if place != "" {
		keys["ingressPlace"] = place
	}
	return keys
}

// cell is one load of every way.
type cell struct {
	load  traffic.Load
	light bool
	last  time.Duration
}

// The loads. Retransmits count after 3 s of the first.
var (
	firstCells = []cell{
		{traffic.TCP1, true, 6 * time.Second},
		{traffic.UDP, false, 2500 * time.Millisecond},
	}
	// An emulated processor sends some 8,000 packets in a second, which is less
	// than 1.2 times 100 Mbit/s: large ones instead.
	fastCells = []cell{
		{traffic.TCP1, true, 6 * time.Second},
		{traffic.UDPGSO, false, 2500 * time.Millisecond},
	}
	topCells  = []cell{firstCells[0], moreCells[0]}
	moreCells = []cell{
		{traffic.TCP1BBR, false, 4 * time.Second},
		{traffic.UDPGSO, false, 2500 * time.Millisecond},
	}
)

// group is what is measured in one lab.
type group struct {
	name string
	// bitsPerSec is the cap, 0 for the highest that the machine can offer.
	bitsPerSec uint64
	cells      []cell
	run        func(*bench) error // nil for cells
}

var groups = []group{
	{"caps10", 10 * mbit, firstCells, nil},
	{"caps100", 100 * mbit, fastCells, nil},
	{"capsTop", 0, topCells, nil},
	{"caps1", mbit, firstCells, nil},
	{"kept", 100 * mbit, nil, (*bench).kept},
	{"order", 10 * mbit, nil, (*bench).order},
	{"more100", 100 * mbit, moreCells, nil},
	{"more10", 10 * mbit, moreCells, nil},
	{"more1", mbit, moreCells, nil},
	{"memory", 100 * mbit, nil, (*bench).memory},
	{"caps1000", 1000 * mbit, fastCells, nil},
}

// usual are the groups of every kernel: what QEMU emulates does not offer the
// rate of the last one, User-Mode Linux does.
func usual() string { return strings.Join(groupNames()[:len(groups)-1], ",") }

func groupNames() []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

func groupNamed(name string) *group {
	for i := range groups {
		if groups[i].name == name {
			return &groups[i]
		}
	}
	return nil
}
