// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import (
	"fmt"
	"slices"
)

// scale is what more of everything costs: flows, and pods.
func scale() *Spec {
	return &Spec{Profile: "scale", Samples: 3, Blocks: slices.Concat([]Block{
		{Phases: []Phase{strict}, Rates: []uint64{gbit}, Workloads: flows()},
	}, podScale())}
}

const (
	// flowPackets, per second, is what one thread sends with a third to spare;
	// at that rate a million flows take turns in 2.5 s, within the memory of
	// the sketch.
	flowPackets = 400_000
	// flowSeconds is four turns of a million flows.
	flowSeconds = 10
)

// flows are light flows at the same time.
func flows() []Workload {
	var out []Workload
	for _, n := range []int{10, 100, 1000, 10_000, 100_000, 1_000_000} {
		out = append(out, Workload{
			Name: fmt.Sprintf("flows-%d-ingress", n), Kind: Flows, Direction: "ingress",
			Flows: n, PacketsPerSecond: flowPackets, BulkSeconds: flowSeconds, Seconds: flowSeconds + 1,
		})
	}
	return out
}
