// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

// cluster is what is measured in a Kubernetes cluster: the phases that a kubelet
// can bring about, and the tuned one, of which the results say that it cannot.
func cluster() *Spec {
	shaped := []Phase{unshaped, bandwidth, bandwidthTuned, strict}
	return &Spec{Profile: "k8s", Samples: 3, Blocks: []Block{
		{Phases: shaped, Rates: []uint64{10 * mbit, 100 * mbit}, Workloads: sweeps("tcp-1-cubic", directions...)},
		{Phases: shaped, Rates: []uint64{100 * mbit}, Workloads: latencies(directions...)},
		{Phases: append(shipped(), flat), Rates: []uint64{10 * mbit}, Workloads: []Workload{mixed()}},
	}}
}
