// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

// vm is for emulated machines: rates that they carry, light loads that leave
// them idle for half of the time, and the qdiscs that kernels of distributions
// have while small ones lack them. Half an hour to three quarters.
func vm() *Spec {
	strictFQ, strictHTB := podweir("strict", "fq"), podweir("strict", "htb")
	return &Spec{Profile: "vm", Samples: 3, Blocks: []Block{
		{
			Phases: []Phase{unshaped, bandwidthTuned, htbFQCodel, cake, edt, cilium, strict, strictFQ, elephants},
			Rates:  []uint64{10 * mbit}, Workloads: sweeps("tcp-1-cubic", directions...),
		},
		// Below 53M podweir makes no htb.
		{Phases: []Phase{strict, strictHTB}, Rates: []uint64{100 * mbit}, Workloads: sweeps("tcp-1-cubic", directions...)},
		{
			Phases: []Phase{unshaped, bandwidthTuned, htbFQCodel, cake, strict},
			Rates:  []uint64{10 * mbit}, Workloads: latencies(directions...),
		},
		{
			Phases: []Phase{unshaped, htbFQCodel, cake, edt, cilium, strict, strictFQ},
			Rates:  []uint64{10 * mbit}, Workloads: []Workload{mixedFew()},
		},
	}}
}

// mixedFew is mixed with so few requests that an emulated machine answers them.
func mixedFew() Workload {
	return Workload{Name: "mixed-few", Kind: Mixed, Variant: "few", Seconds: 32}
}
