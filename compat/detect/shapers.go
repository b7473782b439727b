// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"slices"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/terms"
)

// Others says whether another component enforces the bandwidth annotations of pods,
// by direction.
type Others struct {
	// By is the one that does or may, 0 if there is none.
	By              terms.Shaper
	Egress, Ingress profiles.Answer
	// Why is a sentence without a full stop, "" if there is nothing to say.
	Why string
}

// Enforces says whether it does so for a direction.
func (o *Others) Enforces(d terms.Direction) profiles.Answer {
	if d == terms.Egress {
		return o.Egress
	}
	return o.Ingress
}

// OtherShapers says who else enforces the annotations of the pods that podweir is
// called for: the CNI in force, or Calico's agent, which also runs for policy alone.
// Behind Multus it is the CNI that runs.
func (n *Node) OtherShapers() Others {
	switch {
	case n.Profile != nil && n.Profile.Family == "cilium":
		others := n.Cilium.EnforcesAnnotations()
		others.By = terms.ShaperCilium
		return others
	case n.Profile != nil && (n.Profile.Family == "calico" || n.Calico.mayRun()):
		return n.Calico.EnforcesAnnotations()
	}
	for _, p := range profiles.All() {
		if p.Shaper.Is != 0 && n.makesPods(p.Family) {
			return Others{By: p.Shaper.Is, Egress: p.SharesAnnotations, Ingress: p.SharesAnnotations, Why: p.Title + " enforces kubernetes.io/*-bandwidth, too"}
		}
	}
	return Others{Egress: profiles.No, Ingress: profiles.No}
}

// makesPods says whether a CNI of this family makes the interfaces of pods.
func (n *Node) makesPods(family string) bool {
	if n.Profile == nil || n.Profile.Family != "multus" {
		return n.Profile != nil && n.Profile.Family == family
	}
	return slices.Contains(n.Running, family)
}

// Cilium's bandwidth manager reads the annotation for ingress from 1.18 on: it is
// in v1.18.4 and not in v1.17.0 (pkg/datapath/linux/bandwidth/bandwidth.go).
const ingressMajor, ingressMinor = 1, 18

// EnforcesAnnotations says which of the annotations Cilium's bandwidth manager
// enforces. What the agent does not say is unknown: the setting alone is no
// proof, since the agent turns the manager off by itself where it cannot work.
func (c *Cilium) EnforcesAnnotations() Others {
	switch {
	case c.BandwidthManager == profiles.No, c.BandwidthConfigured == profiles.No && c.BandwidthManager != profiles.Yes:
		return Others{Egress: profiles.No, Ingress: profiles.No}
	case c.BandwidthManager == profiles.Unknown && c.BandwidthConfigured == profiles.Unknown && !c.API:
		return Others{}
	case c.BandwidthManager == profiles.Unknown:
		return Others{Why: "whether Cilium's bandwidth manager is on its agent does not say"}
	}
	on := Others{Egress: profiles.Yes, Ingress: c.enforcesIngress()}
	on.Why = "Cilium's bandwidth manager is on"
	switch on.Ingress {
	case profiles.Yes:
	case profiles.No:
		on.Why += ", and enforces egress alone"
	case profiles.Unknown:
		on.Why += ", and whether it enforces ingress, too, is not known"
	}
	on.Why += " (" + c.describe() + ")"
	return on
}

// enforcesIngress says whether packets to pods meet the manager's policer. It is
// in local_delivery, which packets from the network come to only with BPF host
// routing or out of a tunnel (bpf/bpf_host.c and bpf/lib/local_delivery.h,
// v1.20.2), and which generic-veth chaining goes past
// (https://github.com/cilium/cilium/pull/46431).
func (c *Cilium) enforcesIngress() profiles.Answer {
	recent := profiles.AtLeast(c.Version, ingressMajor, ingressMinor)
	chained := c.ChainingMode != "" && c.ChainingMode != "none" && c.ChainingMode != "portmap"
	switch {
	case recent == profiles.No, c.Routing == "Legacy", c.ChainingMode == "generic-veth":
		return profiles.No
	case recent == profiles.Unknown, c.Routing == "", chained:
		return profiles.Unknown
	}
	return profiles.Yes
}

// describe is what the answer for ingress depends on.
func (c *Cilium) describe() string {
	known := func(name, value string) string {
		if value == "" {
			value = "unknown"
		}
		return name + " " + value
	}
	text := known("version", c.Version) + ", " + known("host routing", c.Routing)
	if c.ChainingMode != "" && c.ChainingMode != "none" {
		text += ", chaining mode " + c.ChainingMode
	}
	return text
}
