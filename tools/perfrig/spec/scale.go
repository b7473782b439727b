// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import "fmt"

// lightCap is a cap of which one sender of small packets, all of whose packets
// are one flow's, uses so little that the flow is light.
const lightCap = 100 * gbit

// scale shows whether the costs of a node full of pods are flat: of one, of a few, of all
// that kubelet takes by default, and of all that large nodes take.
func scale() *Spec {
	var packets, control, memory []Workload
	for _, pods := range []int{1, 8, 110, 250} {
		w := podPackets(pods)
		packets = append(packets, w)
		if pods == 1 || pods == 250 {
			control = append(control, w)
		}
		memory = append(memory, memories(pods))
	}
	return &Spec{Profile: "scale", Samples: 3, Blocks: []Block{
		{Phases: []Phase{strict}, Rates: []uint64{lightCap}, Workloads: packets},
		{Phases: []Phase{unshaped}, Rates: []uint64{lightCap}, Workloads: control},
		// By difference over many pods: one sample is the mean of them.
		{Phases: []Phase{strict}, Rates: []uint64{100 * mbit}, Workloads: memory, Samples: 1},
	}}
}

// podPackets are packets that go to so many pods in turns; the estimate holds for an idle
// machine of two processors.
func podPackets(pods int) Workload {
	return Workload{
		Name: fmt.Sprintf("pods-%d-ingress", pods), Kind: Pods, Pods: pods, Direction: "ingress", Seconds: 38 + 0.2*float64(pods),
	}
}
