// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package spec says what a campaign measures: phases × rates × workloads ×
// samples, and in which order. It is data and pure functions.
package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Kind is what shapes the pod of a phase.
type Kind string

// The kinds of phase.
const (
	// Unshaped has no shaper; its rate is always 0.
	Unshaped Kind = "unshaped"
	// Bandwidth is the reference plugin, a TBF.
	Bandwidth Kind = "bandwidth"
	// Podweir is this project's plugin.
	Podweir Kind = "podweir"
	// Qdisc is a double of another's limit, put on the pod's veth by hand.
	Qdisc Kind = "qdisc"
)

// Phase is one way to hold a pod to a rate.
type Phase struct {
	// Name is unique in a spec and stable: results are compared by it.
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// BurstBits is runtimeConfig.bandwidth's burst of both directions, in bits,
	// for the kinds that a conflist brings.
	BurstBits uint64 `json:"burstBits,omitempty"`
	// Keys are further keys of podweir's conflist entry.
	Keys map[string]string `json:"keys,omitempty"`
	// Discipline names the double of a Qdisc phase.
	Discipline string `json:"discipline,omitempty"`
}

// WorkloadKind is what is done to the pod of a phase.
type WorkloadKind string

// The kinds of workload.
const (
	// Sweep is one load in one direction as fast as it gets.
	Sweep WorkloadKind = "sweep"
	// Mixed is bulk in both directions and light flows beside it.
	Mixed WorkloadKind = "mixed"
	// Latency is a kept connection beside bulk in one direction.
	Latency WorkloadKind = "latency"
	// Cost is what bulk of a limited pod costs the processors.
	Cost WorkloadKind = "cost"
	// Memory is what a number of pods costs the kernel.
	Memory WorkloadKind = "memory"
	// Add is how long ADD takes and how much memory.
	Add WorkloadKind = "add"
	// Pods is the cost of a packet where each goes to another of many pods.
	Pods WorkloadKind = "pods"
	// Packet is the cost of the programs per packet.
	Packet WorkloadKind = "packet"
	// Ordinary is bulk, calls and pages beside each other, without an attack.
	Ordinary WorkloadKind = "ordinary"
)

// Workload is one measurement.
type Workload struct {
	// Name is unique in a spec and stable: results are compared by it.
	Name string       `json:"name"`
	Kind WorkloadKind `json:"kind"`
	// Seconds is how long one sample takes, about, set-up included; it is for
	// the plan's estimate alone.
	Seconds float64 `json:"seconds"`
	// Direction is "ingress" or "egress", from the pod's point of view.
	Direction string `json:"direction,omitempty"`
	// Streams is the number of TCP connections.
	Streams int `json:"streams,omitempty"`
	// Congestion is the TCP congestion control, cubic if empty.
	Congestion string `json:"congestion,omitempty"`
	// Pods is how many pods there are.
	Pods int `json:"pods,omitempty"`
	// Mix is what an [Ordinary] workload has beside each other.
	Mix *Mix `json:"mix,omitempty"`
	// BulkSeconds is how long bulk lasts, where it may differ.
	BulkSeconds float64 `json:"bulkSeconds,omitempty"`
}

// Mix is a call and what is beside it, all of it in one direction. There is no
// attack in it, unless it has a flood.
type Mix struct {
	// Bulk is what sends as much as it can.
	Bulk []Bulk `json:"bulk,omitempty"`
	// Calls is the number of UDP flows with a constant rate, 1 if it is 0, and
	// CallShare the rate of each as a share of the cap.
	Calls     int     `json:"calls,omitempty"`
	CallShare float64 `json:"callShare"`
	// Fetch says that clients in a closed loop get pages, each on a connection of
	// its own.
	Fetch bool `json:"fetch,omitempty"`
	// Stream is one TCP connection with bulk and small answers in it, which campaigns had
	// until 2026-11.
	Stream bool `json:"stream,omitempty"`
	// Tunnel has the bulk go through one UDP flow, as through WireGuard.
	Tunnel bool `json:"tunnel,omitempty"`
	// VideoShare, if not 0, is the share of the cap that a video takes, which comes
	// in a segment every four seconds.
	VideoShare float64 `json:"videoShare,omitempty"`
	// Flood names an attack, of FloodTimes the cap, twice if that is 0.
	Flood      string  `json:"flood,omitempty"`
	FloodTimes float64 `json:"floodTimes,omitempty"`
}

// Bulk is flows of one congestion control: of TCP, or lab.QUIC.
type Bulk struct {
	Congestion string `json:"congestion"`
	Flows      int    `json:"flows"`
	// ECN says that both ends ask for marks in place of drops.
	ECN bool `json:"ecn,omitempty"`
}

// Block is a matrix of cells. The unshaped phase stands in it once for each
// workload, whatever the rates.
type Block struct {
	Phases []Phase `json:"phases"`
	// Rates are caps in bits per second; none means that no cell has a cap.
	Rates     []uint64   `json:"rates,omitempty"`
	Workloads []Workload `json:"workloads"`
	// Samples, if not 0, are instead of the spec's.
	Samples int `json:"samples,omitempty"`
}

// Spec is a whole campaign.
type Spec struct {
	Profile string  `json:"profile"`
	Samples int     `json:"samples"`
	Blocks  []Block `json:"blocks"`
}

// Cell is one combination.
type Cell struct {
	Phase    Phase    `json:"phase"`
	Rate     uint64   `json:"rate"` // bits per second, 0 is no cap
	Workload Workload `json:"workload"`
}

// ID names a cell; it has no spaces.
func (c *Cell) ID() string {
	return c.Workload.Name + "/" + RateName(c.Rate) + "/" + c.Phase.Name
}

// RateName writes a cap as an annotation would: 10M, 1G.
func RateName(bitsPerSec uint64) string {
	switch {
	case bitsPerSec == 0:
		return "uncapped"
	case bitsPerSec%gbit == 0:
		return fmt.Sprintf("%dG", bitsPerSec/gbit)
	case bitsPerSec%mbit == 0:
		return fmt.Sprintf("%dM", bitsPerSec/mbit)
	}
	return fmt.Sprintf("%dk", bitsPerSec/1000)
}

// cells are those of a block, in its own order, each once.
func (b *Block) cells() []Cell {
	rates := b.Rates
	if len(rates) == 0 {
		rates = []uint64{0}
	}
	var out []Cell
	for _, w := range b.Workloads {
		for i, rate := range rates {
			for _, p := range b.Phases {
				if p.Kind != Unshaped {
					out = append(out, Cell{p, rate, w})
				} else if i == 0 {
					out = append(out, Cell{p, 0, w})
				}
			}
		}
	}
	return out
}

// Cells returns the cells in their own order and how many samples of each the
// spec takes, by cell ID. A cell that stands in several blocks is taken as
// often as the block that wants it most says.
func (s *Spec) Cells() (cells []Cell, samples map[string]int) {
	samples = map[string]int{}
	for _, b := range s.Blocks {
		n := cmp.Or(b.Samples, s.Samples)
		for _, c := range b.cells() {
			id := c.ID()
			if samples[id] == 0 {
				cells = append(cells, c)
			}
			samples[id] = max(samples[id], n)
		}
	}
	return cells, samples
}

// Digest identifies what is measured, in 12 hexadecimal digits: a campaign
// resumes only with the spec it began with.
func (s *Spec) Digest() string {
	raw, err := json.Marshal(s)
	if err != nil {
		// Strings, numbers and maps of strings cannot be refused.
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:6])
}
