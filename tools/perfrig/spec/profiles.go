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

// Profiles are all campaigns by name. Every cell of bench is one of ci, and every cell of
// ci, of costs, of distances, of k8s, of leaves, of loads, of ratios, of rivals, of scale
// and of vm one of full, in at most as many samples.
func Profiles() map[string]*Spec {
	out := map[string]*Spec{}
	for _, s := range []*Spec{smoke(), bench(), costs(), ratios(), rivals(), cluster(), loads(), distances(), leaves(), scale(), vm(), ci(), full()} {
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

// costs is what a pod and a packet cost, for which a machine need not be as
// quiet as for latency.
func costs() *Spec {
	return &Spec{Profile: "costs", Samples: 3, Blocks: []Block{
		{Phases: []Phase{bandwidth, strict, strictClsact}, Rates: []uint64{100 * mbit}, Workloads: []Workload{adds(100)}},
		{Phases: []Phase{bandwidth, strict, strictIFB}, Rates: []uint64{100 * mbit}, Workloads: []Workload{memories(100)}},
		{Phases: []Phase{unshaped, unused, elsewhere}, Workloads: others()[:2]},
		{Phases: []Phase{strict}, Workloads: []Workload{{Name: "packet", Kind: Packet, Seconds: 6}}},
		{Phases: closedPhases(), Rates: []uint64{gbit}, Workloads: []Workload{closedAlone()}},
	}}
}

// ratios are differences of some hundredths, which take many samples. A ratio
// of a closed loop is off by two or three hundredths in one sample. What a
// datagram costs is off by one; what a byte of TCP costs, by a factor. How long
// many ADDs at once take is off by a tenth.
func ratios() *Spec {
	const most, times = 12, 8
	policed := podweir("elephants", "none")
	return &Spec{Profile: "ratios", Samples: times, Blocks: []Block{
		{Phases: closedPhases(), Rates: []uint64{gbit}, Samples: times, Workloads: []Workload{closedAlone()}},
		// Policing has the programs and no queue.
		{Phases: []Phase{policed}, Rates: []uint64{gbit}, Samples: times, Workloads: []Workload{closedAlone()}},
		// The same beside bulk that does not wait; its threshold is half of what
		// that bulk has, so that it goes the way of heavy flows.
		{Phases: []Phase{unshaped, pfifo, bandwidth, elephants, policed}, Rates: []uint64{100 * mbit}, Samples: times, Workloads: []Workload{
			{Name: "closed-paced", Kind: Closed, Variant: "paced", Seconds: 9},
		}},
		{Phases: []Phase{elephants}, Rates: []uint64{10 * mbit}, Samples: times, Workloads: []Workload{mixed()}},
		{Phases: []Phase{bandwidth, strict}, Rates: []uint64{100 * mbit}, Samples: times, Workloads: []Workload{adds(100)}},
		{Phases: []Phase{unshaped, unused, elsewhere}, Samples: most, Workloads: othersNamed("others-udp-1-pod")},
	}}
}

// rivals are the limits that Cilium and Calico bring, and the reference plugin's,
// beside podweir's: 20M because Cilium's manual shows that. Of Cilium's, egress is
// for a kernel with fq, in vm.
func rivals() *Spec {
	loads := func(to ...string) []Workload {
		return slices.Concat(latencies(to...), sweeps("tcp-1-cubic", to...), sweeps("tcp-1-bbr", to...))
	}
	phases := []Phase{unshaped, bandwidth, bandwidthTuned, calico, strict}
	return &Spec{Profile: "rivals", Samples: 3, Blocks: []Block{
		{Phases: phases, Rates: []uint64{20 * mbit}, Workloads: loads("egress")},
		{Phases: append(phases, cilium), Rates: []uint64{20 * mbit, 100 * mbit}, Workloads: loads("ingress")},
	}}
}

// closedAlone is far below the cap: what remains is what the queue itself costs.
func closedAlone() Workload { return Workload{Name: "closed-alone", Kind: Closed, Seconds: 8} }

func closedPhases() []Phase { return []Phase{unshaped, pfifo, bandwidth, strict, elephants} }

// adds times ADD; the estimate holds for an idle machine of two processors.
func adds(pods int) Workload {
	return Workload{Name: fmt.Sprintf("add-%d", pods), Kind: Add, Pods: pods, Seconds: 14 + 0.08*float64(pods)}
}

// others are the nine of the CNI benchmark: nothing, and traffic between two
// pods without a limit, by address and through a Service's.
func others() []Workload {
	out := []Workload{{Name: "others-idle", Kind: Others, Seconds: 8, BulkSeconds: 5}}
	for _, variant := range []string{"pod", "service"} {
		for _, load := range []struct {
			name    string
			streams int
		}{{"tcp-1", 1}, {"tcp-8", 8}, {"udp-1", -1}, {"udp-8", -8}} {
			out = append(out, Workload{
				Name: "others-" + load.name + "-" + variant, Kind: Others, Variant: variant,
				Streams: load.streams, Seconds: 8, BulkSeconds: 5,
			})
		}
	}
	return out
}

func othersNamed(name string) []Workload {
	return slices.DeleteFunc(others(), func(w Workload) bool { return w.Name != name })
}

// allFloods are those that a call is beside. Generators of small packets (tiny)
// offer less than 1.2 x 100M here.
var allFloods = []string{"discovery", "ect0", "fragments", "ports", "udp"}

// loads is what pods ordinarily do, and the same call beside floods, with an earlier
// build, a plain queue, the reference plugin and fair queues beside podweir. Small kernels
// have none of the latter; in vm there are all.
func loads() *Spec {
	phases := []Phase{strict, strictBefore, elephants, flat, bandwidthTuned, htbFQCodel, cake}
	return &Spec{Profile: "loads", Samples: 3, Blocks: []Block{
		{
			Phases: phases, Rates: []uint64{10 * mbit, 100 * mbit},
			Workloads: slices.Concat(ordinary(directions...), calledBeside(allFloods, directions...)),
		},
		{Phases: phases, Rates: []uint64{20 * mbit}, Workloads: named(ordinary(directions...), "call-03-bbr-1", "call-03-bbr-8")},
		{Phases: phases, Rates: []uint64{10 * mbit}, Workloads: calledBeside([]string{"tiny"}, directions...)},
	}}
}

// distances are bulk and a call with clients that are far away, so that a sender
// learns of a loss that much later.
func distances() *Spec {
	var far []Workload
	for _, millis := range []int{20, 80} {
		for _, w := range named(ordinary(directions...), "call-03-cubic-1", "call-03-cubic-8", "call-03-bbr-1", "call-03-bbr-8", "call-03-ecn-8") {
			mix := *w.Mix
			mix.RoundTripMillis = millis
			w.Name, w.Mix = fmt.Sprintf("%s-far-%d", w.Name, millis), &mix
			far = append(far, w)
		}
	}
	return &Spec{Profile: "distances", Samples: 3, Blocks: []Block{
		{Phases: []Phase{strict, strictBefore, flat, bandwidthTuned}, Rates: []uint64{10 * mbit, 100 * mbit}, Workloads: far},
	}}
}

// leaves is a trial of fq_codel under podweir's bands, beside fair queues, in an
// emulated machine whose kernel has all of them, and sch_prio.
func leaves() *Spec {
	return &Spec{Profile: "leaves", Samples: 3, Blocks: []Block{
		{
			Phases: []Phase{strict, strictLeafA, strictLeafC, flat, cake, htbFQCodel}, Rates: []uint64{10 * mbit},
			Workloads: slices.Concat(
				named(ordinary("ingress"), "pages", "call-10-cubic-8", "call-03-cubic-1", "call-03-bbr-8", "call-03-ecn-8"),
				calledBeside([]string{"udp"}, "ingress"),
			),
		},
		// Below and above the limit from which the bucket takes whole offloaded packets.
		{
			Phases: []Phase{strict, flat}, Rates: []uint64{10 * mbit, 100 * mbit},
			Workloads: named(ordinary("egress"), "call-10-cubic-8", "call-03-bbr-8"),
		},
	}}
}

// ordinary are loads without an attack: a call, below and at its fair share, beside
// bulk; pages on fresh connections; many small flows that fill the cap; bulk and
// small answers on one connection or through one tunnel; video.
func ordinary(to ...string) []Workload {
	cubic := func(flows int) []Bulk { return []Bulk{{Congestion: "cubic", Flows: flows}} }
	mixes := map[string]Mix{
		"stream": {CallShare: 0.03, Stream: true},
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

func ofMixes(mixes map[string]Mix, to ...string) []Workload {
	var out []Workload
	for _, name := range slices.Sorted(maps.Keys(mixes)) {
		for _, d := range to {
			mix := mixes[name]
			out = append(out, Workload{Name: "load-" + name + "-" + d, Kind: Ordinary, Direction: d, Mix: &mix, Seconds: 13.5})
		}
	}
	return out
}

// percentiles are fixed rates, as shares of what the machine can at most.
func percentiles() []Workload {
	var out []Workload
	for _, share := range []float64{0.1, 0.3, 0.5, 0.8} {
		out = append(out, Workload{
			Name: fmt.Sprintf("percentiles-%02.0f", 100*share), Kind: Percentiles, Share: share, Seconds: 24,
		})
	}
	return out
}

func memories(pods int) Workload {
	return Workload{Name: fmt.Sprintf("memory-%d", pods), Kind: Memory, Pods: pods, Seconds: 12 + 0.1*float64(pods)}
}

// attacks are floods that are made to pass a cap.
func attacks(to ...string) []Workload {
	var out []Workload
	for _, variant := range []string{"collide", "ect0", "fragments", "ports", "tiny"} {
		for _, d := range to {
			out = append(out, attackOf(variant, d))
		}
	}
	return out
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
	s := &Spec{Profile: "full", Samples: 5, Blocks: slices.Concat(ci().Blocks, costs().Blocks, ratios().Blocks, rivals().Blocks, loads().Blocks, distances().Blocks, leaves().Blocks, scale().Blocks, vm().Blocks)}
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
		Block{Phases: []Phase{strict, elephants}, Rates: []uint64{gbit, 10 * gbit}, Workloads: flows(directions...)},
		Block{Phases: []Phase{strict}, Rates: []uint64{100 * mbit}, Workloads: []Workload{freshFlows()}, Samples: 1},
		// So high that the requests alone are far below the cap.
		Block{Phases: shipped(), Rates: []uint64{gbit}, Workloads: percentiles()},
		Block{Phases: []Phase{unshaped, unused, elsewhere}, Workloads: others()},
		// Generators of small packets offer less than 1.2 x 100M here.
		Block{
			Phases: []Phase{unshaped, bandwidthTuned, strict, elephants, flat}, Rates: []uint64{10 * mbit},
			Workloads: attacks(directions...),
		},
		Block{
			Phases: []Phase{bandwidth, htb, strict, strictClsact}, Rates: []uint64{100 * mbit},
			Workloads: []Workload{adds(1), adds(8), adds(110), adds(250)},
		},
	)
	s.Blocks = append(s.Blocks, podBlocks()...)
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

// SweepSeconds is how long the bulk of a [Sweep] lasts.
const SweepSeconds = 8

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
		w.BulkSeconds = SweepSeconds
		w.Seconds = w.BulkSeconds + 2
		out = append(out, w)
	}
	return out
}
