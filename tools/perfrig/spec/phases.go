// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import "maps"

const (
	mbit = 1_000_000
	gbit = 1000 * mbit

	// runtimeBurst is the burst, in bits, that containerd hands down with every
	// bandwidth annotation, math.MaxUint32: the reference plugin "as shipped".
	runtimeBurst = 4294967295
	// tunedBurst is what someone who knows tc sets: 64 kB. The plugin's latency
	// of 25 ms cannot be set.
	tunedBurst = 64 * 1024 * 8
)

// BandwidthPlugin is the phase of the reference plugin, with the release of e2e/k8s/components,
// and Tuned what the name of the one with another burst ends in.
const (
	BandwidthPlugin = "bandwidth-1.10"
	Tuned           = "-tuned"
)

// BeforePlugin is the name of the podweir-cni of an earlier build, which "make before"
// puts beside that of today.
const BeforePlugin = "podweir-cni-before"

// The phases.
var (
	unshaped = Phase{Name: "unshaped", Kind: Unshaped}

	bandwidth      = Phase{Name: BandwidthPlugin, Kind: Bandwidth, BurstBits: runtimeBurst}
	bandwidthTuned = Phase{Name: BandwidthPlugin + Tuned, Kind: Bandwidth, BurstBits: tunedBurst}

	// What users have who do not chain a plugin, by the doubles of package rivals:
	// Cilium's policer of ingress, and Calico's token bucket.
	cilium = Phase{Name: "cilium", Kind: Qdisc, Discipline: "cilium"}
	calico = Phase{Name: "calico", Kind: Qdisc, Discipline: "calico"}

	strict    = podweir("strict")
	elephants = podweir("elephants")
	flat      = podweir("flat")

	// The build that a change is compared with, in the same run.
	strictBefore = strict.with("before", "type", BeforePlugin)

	// Ingress where a device must be made for it, and where no TCX link is.
	strictIFB    = strict.with("ifb", "ingressPlace", "ifb")
	strictClsact = strict.with("clsact", "ingressMode", "clsact-hostside")
)

// podweir is the phase of a policy.
func podweir(policy string) Phase {
	return Phase{Name: "podweir-" + policy, Kind: Podweir, BurstBits: runtimeBurst, Keys: map[string]string{"policy": policy}}
}

// with is the phase with one more key.
func (p Phase) with(name, key, value string) Phase {
	keys := maps.Clone(p.Keys)
	keys[key] = value
	p.Name, p.Keys = p.Name+"-"+name, keys
	return p
}
