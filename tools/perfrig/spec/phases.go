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
	// tunedBurst is that of somebody who knows tc: 64 kB. The plugin's latency
	// of 25 ms cannot be set.
	tunedBurst = 64 * 1024 * 8
)

// BeforePlugin is the name of the podweir-cni of an earlier build, which "make before"
// puts beside that of today.
const BeforePlugin = "podweir-cni-before"

// The phases.
var (
	unshaped = Phase{Name: "unshaped", Kind: Unshaped}

	bandwidth      = Phase{Name: "bandwidth-1.9", Kind: Bandwidth, BurstBits: runtimeBurst}
	bandwidthTuned = Phase{Name: "bandwidth-1.9-tuned", Kind: Bandwidth, BurstBits: tunedBurst}
	htb            = Phase{Name: "bandwidth-1.5.1", Kind: BandwidthHTB, BurstBits: runtimeBurst}
	htbTuned       = Phase{Name: "bandwidth-1.5.1-tuned", Kind: BandwidthHTB, BurstBits: tunedBurst}

	htbFQCodel = Phase{Name: "htb+fq_codel", Kind: Qdisc, Discipline: "htb+fq_codel"}
	cake       = Phase{Name: "cake", Kind: Qdisc, Discipline: "cake"}
	edt        = Phase{Name: "edt", Kind: Qdisc, Discipline: "edt"}

	// What users have who do not chain a plugin, by the doubles of package rivals:
	// Cilium's policer of ingress and departure times of egress, which need fq,
	// and Calico's token bucket.
	cilium = Phase{Name: "cilium", Kind: Qdisc, Discipline: "cilium"}
	calico = Phase{Name: "calico", Kind: Qdisc, Discipline: "calico"}

	// What any queue costs a veth, which has none by itself.
	pfifo = Phase{Name: "pfifo", Kind: Qdisc, Discipline: "pfifo"}

	strict    = podweir("strict", "auto")
	elephants = podweir("elephants", "auto")
	flat      = podweir("flat", "auto")

	// The build that a change is compared with, in the same run.
	strictBefore = strict.with("before", "type", BeforePlugin)

	// The second band with fq_codel as its leaf, a trial: that drops and marks in place of
	// podweir's program (a), or only serves the flows in turns (c).
	strictLeafA = strict.leaf("a")
	strictLeafC = strict.leaf("c")

	// What podweir costs pods without a limit: in the conflist and not asked
	// for anything, and busy with others.
	unused    = Phase{Name: "podweir-unused", Kind: Podweir}
	elsewhere = Phase{Name: "podweir-elsewhere", Kind: Podweir, Elsewhere: 20}

	// Ingress where a device must be made for it, and where no TCX link is.
	strictIFB    = strict.with("ifb", "ingressPlace", "ifb")
	strictClsact = strict.with("clsact", "ingressMode", "clsact-hostside")
)

// podweir is the phase of a policy with a queue kind. The horizon of fq under
// strict is the longest that its configuration takes.
func podweir(policy, queue string) Phase {
	p := Phase{Name: "podweir-" + policy, Kind: Podweir, BurstBits: runtimeBurst, Keys: map[string]string{"policy": policy}}
	if queue != "auto" {
		p.Name += "-" + queue
		p.Keys["queue"] = queue
	}
	if queue == "fq" && policy == "strict" {
		p.Keys["horizon"] = "8ms"
	}
	return p
}

// with is the phase with one more key.
func (p Phase) with(name, key, value string) Phase {
	keys := maps.Clone(p.Keys)
	keys[key] = value
	p.Name, p.Keys = p.Name+"-"+name, keys
	return p
}

// leaf is the phase with another leaf of the second band.
func (p Phase) leaf(name string) Phase {
	p.Name, p.Leaves = p.Name+"-leaf-"+name, name
	return p
}

// shipped are the phases of a published table, with ours.
func shipped() []Phase { return []Phase{unshaped, bandwidth, bandwidthTuned, strict, elephants} }

// everything is every phase, whatever the kernel has: what it lacks is said in
// the results.
func everything() []Phase {
	out := []Phase{unshaped, bandwidth, bandwidthTuned, htb, htbTuned, htbFQCodel, cake, edt, strict, elephants, flat}
	for _, policy := range []string{"strict", "elephants", "flat"} {
		for _, queue := range []string{"tbf", "htb", "fq", "none"} {
			out = append(out, podweir(policy, queue))
		}
	}
	return out
}
