// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
)

// row is one measurement. Numbers that a row does not have are nil or zero.
type row struct {
	Kernel, Group string
	// Release is that of the running kernel, Date the day.
	Release, Date string
	// MachineLoad is the load average of the machine, over 1 minute, before and
	// after the group: other work beside an emulated machine slows it.
	MachineLoad string `json:",omitempty"`
	Way         string
	Place       string
	Direction   string
	Cap         uint64 // bits per second
	Load        string
	// Note says why there is no number.
	Note string `json:",omitempty"`

	Caps   *capNumbers   `json:",omitempty"`
	Order  *orderNumbers `json:",omitempty"`
	Kept   *keptNumbers  `json:",omitempty"`
	Memory *memNumbers   `json:",omitempty"`
}

// capNumbers are what passed, in wire bytes.
type capNumbers struct {
	// Worst is the worst second as a share of the cap by the wire meter, Limit
	// what promise 2 allows there, Counter the worst by the root qdisc's own
	// byte counter, 0 without one.
	Worst, Limit, Counter float64
	// ExcessMillis is the least burst that explains every window, in ms of
	// the cap.
	ExcessMillis float64
	Used         float64
	// Carried is what the unlimited pod carried of the load, in bit/s.
	Carried float64
	// Early and Late are retransmits in the first 3 s and after, Segments
	// those sent after, in LateSeconds.
	Early, Late, Segments, LateSeconds float64
	// CPU is the share of the machine that was busy meanwhile, BusyPerGbit
	// the processor seconds for each Gbit that passed.
	CPU, BusyPerGbit float64
	// StallMillis is the longest time by which a sleep of 5 ms was late.
	StallMillis float64
	PacketBytes float64
}

type orderNumbers struct{ Sent, Received, Inversions uint64 }

// keptNumbers are latencies in ms of a kept connection beside bulk, and of the
// unlimited pod's in turns with it.
type keptNumbers struct {
	P50, P99, BystanderP50, BystanderP99 float64
	Requests, Failed                     int
}

// memNumbers are bytes for each pod, both directions.
type memNumbers struct {
	Total, Slab, Vmalloc, PerCPU, Memlock int64
	Pods                                  int
}

// key tells what was measured; a later row replaces one of the same key.
func (r *row) key() [8]any {
	return [8]any{r.Kernel, r.Group, r.Way, r.Place, r.Direction, r.Cap, r.Load}
}

type results struct{ Rows []row }

func readResults(file string) (*results, error) {
	r := &results{}
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(raw, &r.Rows)
}

// drop forgets a group of a kernel, which was measured again as a whole: another
// cap or load of then is not what is measured now.
func (r *results) drop(kernel, group string) {
	r.Rows = slices.DeleteFunc(r.Rows, func(old row) bool { return old.Kernel == kernel && old.Group == group })
}

func (r *results) merge(rows []row) {
	for _, one := range rows {
		i := slices.IndexFunc(r.Rows, func(old row) bool { return old.key() == one.key() })
		if i >= 0 {
			r.Rows[i] = one
		} else {
			r.Rows = append(r.Rows, one)
		}
	}
}

func (r *results) write(file string) error {
	raw, err := json.MarshalIndent(r.Rows, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644)
}
