// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import (
	"fmt"
	"slices"
)

// scale is what more of everything costs, and the attack that more flows make
// possible.
func scale() *Spec {
	return &Spec{Profile: "scale", Samples: 3, Blocks: slices.Concat([]Block{
		{Phases: []Phase{strict}, Rates: []uint64{gbit}, Workloads: flows("ingress")},
		{Phases: []Phase{strict}, Rates: []uint64{10 * mbit}, Workloads: collisions()},
	}, podScale())}
}

const (
	// flowPackets, per second, is what one thread sends with a third to spare;
	// at that rate a million flows take turns in 2.5 s, within the memory of
	// the sketch.
	flowPackets = 400_000
	// freshPackets and freshSeconds are those of the promise: ten minutes of
	// 6,000 flows a second, none of which was there before.
	freshPackets, freshSeconds = 6_000, 600
	// flowSeconds is four turns of a million flows.
	flowSeconds = 10
)

// flows are light flows at the same time.
func flows(to ...string) []Workload {
	var out []Workload
	for _, n := range []int{10, 100, 1000, 10_000, 100_000, 1_000_000} {
		for _, d := range to {
			out = append(out, Workload{
				Name: fmt.Sprintf("flows-%d-%s", n, d), Kind: Flows, Direction: d,
				Flows: n, PacketsPerSecond: flowPackets, BulkSeconds: flowSeconds, Seconds: flowSeconds + 1,
			})
		}
	}
	return out
}

// freshFlows has one packet of each flow.
func freshFlows() Workload {
	return Workload{
		Name: fmt.Sprintf("flows-fresh-ingress-%ds", freshSeconds), Kind: Flows, Direction: "ingress",
		Flows: freshPackets * freshSeconds, PacketsPerSecond: freshPackets,
		BulkSeconds: freshSeconds, Seconds: freshSeconds + 1,
	}
}

// collisions are the attack on a sketch without a key of its own, and its
// control: the same where the attacker knows the key.
func collisions() []Workload {
	var out []Workload
	for _, d := range directions {
		out = append(out, attackOf("collide", d), attackOf("collide-known", d))
	}
	return out
}

func attackOf(variant, d string) Workload {
	return Workload{Name: "attack-" + variant + "-" + d, Kind: Attack, Variant: variant, Direction: d, Seconds: 10}
}
