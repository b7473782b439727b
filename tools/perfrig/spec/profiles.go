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

// Profiles are all campaigns by name.
func Profiles() map[string]*Spec {
	out := map[string]*Spec{}
	for _, s := range []*Spec{costs(), loads(), rivals(), scale()} {
		out[s.Profile] = s
	}
	return out
}

// Profile returns a campaign by its name.
func Profile(name string) (*Spec, error) {
	all := Profiles()
	if s := all[name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("no profile %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}

// costs is what a change is compared by: what a pod and a packet cost, and beside that
// latency and the use of the cap. Half an hour.
func costs() *Spec {
	return &Spec{Profile: "costs", Samples: 3, Blocks: []Block{
		{Phases: []Phase{bandwidthTuned, strict}, Rates: []uint64{100 * mbit}, Workloads: slices.Concat(
			latencies(directions...), sweeps("cubic", directions...))},
		{Phases: []Phase{bandwidth, strict, strictClsact}, Rates: []uint64{100 * mbit}, Workloads: []Workload{adds(100)}},
		{Phases: []Phase{bandwidth, strict, strictIFB}, Rates: []uint64{100 * mbit}, Workloads: []Workload{memories(100)}},
		{Phases: []Phase{bandwidthTuned, strict}, Rates: []uint64{100 * mbit, gbit, 10 * gbit}, Workloads: processors(directions...)},
		{Phases: []Phase{calico, strictBefore}, Rates: []uint64{100 * mbit}, Workloads: processors(directions...)},
		{Phases: []Phase{cilium}, Rates: []uint64{100 * mbit}, Workloads: processors("ingress")},
		{Phases: []Phase{strict}, Workloads: []Workload{{Name: "packet", Kind: Packet, Seconds: 6}}},
	}}
}

// rivals is what users have beside podweir: the limits that Cilium and Calico bring, and
// the reference plugin's. 20M because Cilium's manual shows that. Of Cilium's
// there is ingress alone: the other direction needs fq.
func rivals() *Spec {
	loads := func(to ...string) []Workload {
		return slices.Concat(latencies(to...), sweeps("cubic", to...), sweeps("bbr", to...))
	}
	phases := []Phase{bandwidth, bandwidthTuned, calico, strict}
	return &Spec{Profile: "rivals", Samples: 3, Blocks: []Block{
		{Phases: phases, Rates: []uint64{20 * mbit}, Workloads: loads("egress")},
		{Phases: append(phases, cilium), Rates: []uint64{20 * mbit, 100 * mbit}, Workloads: loads("ingress")},
		{Phases: []Phase{unshaped}, Workloads: latencies("ingress")},
		{
			Phases: []Phase{bandwidth, bandwidthTuned, strict, elephants}, Rates: []uint64{10 * mbit},
			Workloads: []Workload{{Name: "mixed", Kind: Mixed, Seconds: 15}},
		},
	}}
}

// Demo is one sample of each number of the table of [rivals] at 20M, four minutes of it.
func Demo() *Spec {
	return &Spec{Profile: "demo", Samples: 1, Blocks: []Block{{
		Phases: []Phase{bandwidth, bandwidthTuned, calico, cilium, strict}, Rates: []uint64{20 * mbit},
		Workloads: slices.Concat(sweeps("cubic", "ingress"), sweeps("bbr", "ingress"), latencies("ingress")),
	}}}
}

// adds times ADD; the estimate holds for an idle machine of two processors.
func adds(pods int) Workload {
	return Workload{Name: fmt.Sprintf("add-%d", pods), Kind: Add, Pods: pods, Seconds: 14 + 0.08*float64(pods)}
}

// processors are four cubic flows.
func processors(to ...string) []Workload {
	return toward(to, Workload{Name: "cost-cubic-4", Kind: Cost, Streams: 4, Congestion: "cubic", BulkSeconds: 6, Seconds: 14})
}

// toward is a workload in each of some directions, which end its name.
func toward(directions []string, w Workload) []Workload {
	var out []Workload
	for _, w.Direction = range directions {
		one := w
		one.Name += "-" + w.Direction
		out = append(out, one)
	}
	return out
}

// allFloods are those that a call is beside. Generators of small packets (tiny)
// offer less than 1.2 x 100M here.
var allFloods = []string{"discovery", "ect0", "fragments", "ports", "udp"}

// loads is what pods ordinarily do, and the same call beside floods, with an earlier
// build, a plain queue and the reference plugin beside podweir.
func loads() *Spec {
	phases := []Phase{strict, strictBefore, elephants, flat, bandwidthTuned}
	return &Spec{Profile: "loads", Samples: 3, Blocks: []Block{
		{
			Phases: phases, Rates: []uint64{10 * mbit, 100 * mbit},
			Workloads: slices.Concat(ordinary(directions...), calledBeside(allFloods, directions...)),
		},
		{Phases: phases, Rates: []uint64{20 * mbit}, Workloads: named(ordinary(directions...), "call-03-bbr-1", "call-03-bbr-8")},
		{Phases: phases, Rates: []uint64{10 * mbit}, Workloads: calledBeside([]string{"tiny"}, directions...)},
		{
			Phases: []Phase{strict, strictBefore, flat, bandwidthTuned}, Rates: []uint64{10 * mbit, 100 * mbit},
			Workloads: besideUDP(directions...),
		},
	}}
}

// ordinary are loads without an attack: a call, below and at its fair share, beside
// bulk; pages on fresh connections; many small flows that fill the cap; bulk through a
// tunnel; video.
func ordinary(to ...string) []Workload {
	cubic := func(flows int) []Bulk { return []Bulk{{Congestion: "cubic", Flows: flows}} }
	mixes := map[string]Mix{
		"tunnel": {CallShare: 0.03, Tunnel: true, Bulk: cubic(1)},
		// Below the fair share of two flows and of nine, as players choose it.
		"video-30-cubic-1": {CallShare: 0.03, VideoShare: 0.3, Bulk: cubic(1)},
		"video-08-cubic-8": {CallShare: 0.03, VideoShare: 0.08, Bulk: cubic(8)},

		"pages":             {CallShare: 0.015, Fetch: true},
		"calls-200":         {Calls: 200, CallShare: 0.005},
		"call-03-mixed-4-4": {CallShare: 0.03, Bulk: []Bulk{{Congestion: "cubic", Flows: 4}, {Congestion: "bbr", Flows: 4}}},
		// Below 1 % of the cap is below the fair share of 65 flows.
		"call-01-cubic-64": {CallShare: 0.01, Bulk: cubic(64)},
		"call-03-cubic-64": {CallShare: 0.03, Bulk: cubic(64)},
		"call-03-bbr-64":   {CallShare: 0.03, Bulk: []Bulk{{Congestion: "bbr", Flows: 64}}},
	}
	for _, flows := range []int{1, 8} {
		for _, percent := range []int{3, 10, 20} {
			for _, congestion := range []string{"cubic", "bbr"} {
				mixes[fmt.Sprintf("call-%02d-%s-%d", percent, congestion, flows)] = Mix{
					CallShare: float64(percent) / 100, Bulk: []Bulk{{Congestion: congestion, Flows: flows}},
				}
			}
		}
		mixes[fmt.Sprintf("call-03-ecn-%d", flows)] = Mix{CallShare: 0.03, Bulk: []Bulk{{Congestion: "cubic", Flows: flows, ECN: true}}}
	}
	return ofMixes(mixes, to...)
}

// named are the loads whose name, without what all have and the direction, ends so.
func named(all []Workload, ends ...string) []Workload {
	return slices.DeleteFunc(slices.Clone(all), func(w Workload) bool {
		name := strings.TrimSuffix(w.Name, "-"+w.Direction)
		return !slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, "-"+end) })
	})
}

// calledBeside are floods with a call beside each.
func calledBeside(floods []string, to ...string) []Workload {
	mixes := map[string]Mix{}
	for _, flood := range floods {
		mixes["flood-"+flood] = Mix{CallShare: 0.03, Flood: flood}
	}
	return ofMixes(mixes, to...)
}

// besideUDP is bulk that slows down beside one UDP flow that does not.
func besideUDP(to ...string) []Workload {
	mixes := map[string]Mix{}
	for congestion, flows := range map[string][2]int{"cubic": {1, 4}, "bbr": {1, 8}, "quic": {1, 4}} {
		for _, n := range flows {
			for _, percent := range []int{120, 150, 300} {
				mixes[fmt.Sprintf("udp-%d-%s-%d", percent, congestion, n)] = Mix{
					CallShare: 0.03, Bulk: []Bulk{{Congestion: congestion, Flows: n}}, Flood: "udp", FloodTimes: float64(percent) / 100,
				}
			}
		}
	}
	return ofMixes(mixes, to...)
}

func ofMixes(mixes map[string]Mix, to ...string) []Workload {
	var out []Workload
	for _, name := range slices.Sorted(maps.Keys(mixes)) {
		mix := mixes[name]
		out = append(out, toward(to, Workload{Name: "load-" + name, Kind: Ordinary, Mix: &mix, Seconds: 13.5})...)
	}
	return out
}

func memories(pods int) Workload {
	return Workload{Name: fmt.Sprintf("memory-%d", pods), Kind: Memory, Pods: pods, Seconds: 12 + 0.1*float64(pods)}
}

func latencies(to ...string) []Workload {
	return toward(to, Workload{Name: "latency", Kind: Latency, Seconds: 16})
}

// SweepSeconds is how long the bulk of a [Sweep] lasts.
const SweepSeconds = 8

// sweeps are one TCP connection of a congestion control, as fast as it gets.
func sweeps(congestion string, to ...string) []Workload {
	return toward(to, Workload{
		Name: "tcp-1-" + congestion, Kind: Sweep, Streams: 1, Congestion: congestion, BulkSeconds: SweepSeconds, Seconds: SweepSeconds + 2,
	})
}
