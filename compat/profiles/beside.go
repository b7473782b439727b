// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import (
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

// OneShaperBeside says how a pod gets one shaper beside another component that enforces
// the standard annotations.
func OneShaperBeside(s terms.Shaper) string {
	if s == terms.ShaperCalico {
		return OneShaperBesideFelix
	}
	return ownKeys + "; to leave the limits to " + s.Title() + " give the default shaper=" + s.String()
}

// ownKeys are the annotations that only podweir reads.
const ownKeys = "give such pods podweir.io/ingress-rate and podweir.io/egress-rate, which only podweir reads, in place of kubernetes.io/*-bandwidth"

// OneShaperBesideFelix says how a pod gets one shaper beside Calico's agent.
const OneShaperBesideFelix = "to take Felix's own limit away annotate the pod with qos.projectcalico.org/ingressBandwidth: \"1P\" and " +
	"qos.projectcalico.org/egressBandwidth: \"1P\", or give it podweir.io/ingress-rate and podweir.io/egress-rate in place of kubernetes.io/*-bandwidth; " +
	"to leave the limits to Calico give the default shaper=calico"

// LiftFelixLimit is the command that takes Felix's limit from a pod, and the way to do so
// for all. A pod is namespace/name.
func LiftFelixLimit(pod string) string {
	namespace, name, _ := strings.Cut(pod, "/")
	return "kubectl -n " + namespace + " annotate pod " + name + " qos.projectcalico.org/ingressBandwidth=1P qos.projectcalico.org/egressBandwidth=1P; " +
		"for all pods, and other ways to one shaper: docs/howto/calico.md"
}

// BesideFelix returns the profile for a node where Calico's agent may enforce policy beside
// the CNI, and owns root qdiscs of the host side.
func (p *Profile) BesideFelix() *Profile {
	felix := Find("calico")
	if p.Family == felix.Family || slices.Contains(p.RootQdiscs, felix.RootQdiscs[0]) {
		return p
	}
	out := *p
	if out.Ingress.Place != terms.PlaceIFB {
		out.Ingress.Place, out.Ingress.Why = felix.Ingress.Place, felix.Ingress.Why
	}
	for attach, more := range map[*Attach]map[terms.Mode]string{&out.Egress: felix.Egress.Refused, &out.Ingress: felix.Ingress.Refused} {
		all := maps.Clone(more)
		maps.Copy(all, attach.Refused)
		attach.Refused = all
	}
	out.Hooks = slices.Concat(p.Hooks, felix.Hooks)
	out.RootQdiscs = slices.Concat(p.RootQdiscs, felix.RootQdiscs)
	return &out
}
