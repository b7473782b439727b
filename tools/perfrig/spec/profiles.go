// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// directions are from the pod's point of view.
var directions = []string{"egress", "ingress"}

// Profiles are all campaigns by name. Every cell of bench is one of ci, and
// every cell of ci one of full, in at most as many samples.
func Profiles() map[string]*Spec {
	out := map[string]*Spec{}
	for _, s := range []*Spec{smoke(), bench(), ci(), full()} {
		out[s.Profile] = s
	}
	return out
}

// Profile returns a campaign by its name.
func Profile(name string) (*Spec, error) {
	all := Profiles()
	if s := all[name]; s != nil {
		return s, s.Validate()
	}
	return nil, fmt.Errorf("no profile %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}

// smoke shows in a minute that the rig works; its numbers mean nothing.
func smoke() *Spec {
	return &Spec{Profile: "smoke", Samples: 1, Blocks: []Block{
		{Phases: []Phase{unshaped, bandwidthTuned, strict}, Rates: []uint64{100 * mbit}, Workloads: latencies("egress")},
		{Phases: []Phase{htbFQCodel, strict}, Rates: []uint64{10 * mbit}, Workloads: []Workload{mixed()}},
	}}
}

// bench is what every change is held against: ten minutes.
func bench() *Spec {
	return &Spec{Profile: "bench", Samples: 3, Blocks: []Block{
		{Phases: []Phase{unshaped, bandwidthTuned, strict}, Rates: []uint64{100 * mbit}, Workloads: slices.Concat(
			latencies(directions...), sweeps("tcp-1-cubic", directions...))},
	}}
}

func ci() *Spec {
	s := &Spec{Profile: "ci", Samples: 3, Blocks: bench().Blocks}
	s.Blocks = append(s.Blocks,
		Block{Phases: append(shipped(), htb), Rates: []uint64{10 * mbit}, Workloads: []Workload{mixed()}},
		Block{Phases: append(shipped(), htb), Rates: []uint64{100 * mbit}, Workloads: latencies(directions...)},
		Block{Phases: shipped(), Rates: []uint64{10 * mbit, gbit}, Workloads: sweeps("tcp-1-cubic", directions...)},
	)
	return s
}

func full() *Spec {
	s := &Spec{Profile: "full", Samples: 5, Blocks: ci().Blocks}
	var all []Workload
	for _, load := range sweepNames() {
		all = append(all, sweeps(load, directions...)...)
	}
	s.Blocks = append(s.Blocks,
		Block{Phases: everything(), Rates: []uint64{10 * mbit, 100 * mbit, gbit}, Workloads: []Workload{mixed()}},
		Block{Phases: everything(), Rates: []uint64{100 * mbit}, Workloads: latencies(directions...)},
		Block{Phases: everything(), Rates: []uint64{10 * mbit, 100 * mbit, gbit, 10 * gbit}, Workloads: sweeps("tcp-1-cubic", directions...)},
		Block{
			Phases: []Phase{unshaped, bandwidth, bandwidthTuned, strict, elephants, flat},
			Rates:  []uint64{10 * mbit, 100 * mbit, gbit, 10 * gbit}, Workloads: all,
		},
	)
	return s
}

func mixed() Workload { return Workload{Name: "mixed", Kind: Mixed, Seconds: 15} }

func latencies(to ...string) []Workload {
	var out []Workload
	for _, d := range to {
		out = append(out, Workload{Name: "latency-" + d, Kind: Latency, Direction: d, Seconds: 20})
	}
	return out
}

// sweepLoads are the loads of the sweep by name.
var sweepLoads = map[string]Workload{
	"tcp-1-cubic":  {Streams: 1, Congestion: "cubic"},
	"tcp-8-cubic":  {Streams: 8, Congestion: "cubic"},
	"tcp-20-cubic": {Streams: 20, Congestion: "cubic"},
	"tcp-1-bbr":    {Streams: 1, Congestion: "bbr"},
	"tcp-8-bbr":    {Streams: 8, Congestion: "bbr"},
	"tcp-20-bbr":   {Streams: 20, Congestion: "bbr"},
	"tcp6-1-cubic": {Streams: 1, Congestion: "cubic", IPv6: true},
	"tcp6-8-cubic": {Streams: 8, Congestion: "cubic", IPv6: true},
	"tcp6-1-bbr":   {Streams: 1, Congestion: "bbr", IPv6: true},
	"udp":          {},
	"udp6":         {IPv6: true},
}

func sweepNames() []string { return slices.Sorted(maps.Keys(sweepLoads)) }

func sweeps(load string, to ...string) []Workload {
	var out []Workload
	for _, d := range to {
		w := sweepLoads[load]
		w.Name, w.Kind, w.Direction = load+"-"+d, Sweep, d
		w.BulkSeconds = 8
		w.Seconds = w.BulkSeconds + 2
		out = append(out, w)
	}
	return out
}
