// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import "fmt"

// podSteps are the numbers of pods of a node: one, a few, all that kubelet takes
// by default, and all that large nodes take.
var podSteps = []int{1, 8, 110, 250}

// lightCap is a cap of which one sender of small packets, all of whose packets
// are one flow's, uses so little that the flow is light.
const lightCap = 100 * gbit

// podScale shows whether the costs of a node full of pods are flat.
func podScale() []Block {
	ends := []int{podSteps[0], podSteps[len(podSteps)-1]}
	return []Block{
		{Phases: []Phase{strict}, Rates: []uint64{lightCap}, Workloads: podPackets(podSteps...)},
		{Phases: []Phase{unshaped}, Rates: []uint64{lightCap}, Workloads: podPackets(ends...)},
		{Phases: []Phase{strict}, Workloads: podTurns()},
		// Without TCX links, which wait for RCU.
		{Phases: []Phase{strictClsact}, Rates: []uint64{100 * mbit}, Workloads: podAdds(ends...)},
		// By difference over many pods: one sample is the mean of them.
		{Phases: []Phase{strict}, Rates: []uint64{100 * mbit}, Workloads: podMemory(podSteps...), Samples: 1},
	}
}

// podPackets are packets that go to so many pods in turns; this and the other
// estimates hold for an idle machine of two processors.
func podPackets(pods ...int) []Workload {
	return podWorkloads(Pods, "pods-%d-ingress", 38, 0.2, pods)
}

// podTurns are the programs of so many pods by themselves.
func podTurns() []Workload { return podWorkloads(Turns, "turns-%d", 6, 0.1, podSteps) }

// podAdds is ADD on a node with so many pods.
func podAdds(pods ...int) []Workload { return podWorkloads(Adds, "adds-beside-%d", 30, 0.1, pods) }

// podMemory is the memory of so many pods, and of the agent.
func podMemory(pods ...int) []Workload {
	out := make([]Workload, 0, len(pods))
	for _, n := range pods {
		out = append(out, memories(n))
	}
	return out
}

func podWorkloads(kind WorkloadKind, name string, seconds, perPod float64, pods []int) []Workload {
	var out []Workload
	for _, n := range pods {
		w := Workload{Name: fmt.Sprintf(name, n), Kind: kind, Pods: n, Seconds: seconds + perPod*float64(n)}
		if kind == Pods {
			w.Direction = directions[1]
		}
		out = append(out, w)
	}
	return out
}
