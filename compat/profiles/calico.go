// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import (
	"maps"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

func calicoConflist() ConflistPolicy {
	return ConflistPolicy{
		File: "10-calico.conflist",
	}
}

func calicoConflicts() []Conflict {
	return []Conflict{
		{
			"Calico's QoS controls",
			"from v3.30 Felix enforces kubernetes.io/*-bandwidth itself: it takes every root tbf on a cali device for its own, and replaces or deletes it",
			"podweir's ingress queue is on an ifb in the pod, where Felix does not reach; " + OneShaperBesideFelix,
		},
		bandwidthConflict(),
	}
}

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

// felixHooks and felixQdiscs are what Felix makes for a pod with a limit, from
// v3.30: for egress it sends all packets to an ifb.
func felixHooks() []HookUse {
	return []HookUse{{
		terms.HookKindClsact, terms.HookIngress,
		[]string{"u32 filter"},
		Yes,
		"for a pod with a limit of egress, from v3.30: all packets go to an ifb; every other filter on the hook is deleted",
	}}
}

func felixQdiscs() []QdiscUse {
	return []QdiscUse{{"host-side device, and a bwcali ifb for egress", "tbf", "the pod has a bandwidth annotation that Calico honours"}}
}

// Where what is said of Calico was read:
//
//   - https://github.com/projectcalico/calico/blob/28fd1a1043405e287d12a22c863b7f4cf6513519/charts/calico/templates/calico-config.yaml (commit 28fd1a104340): chain calico, portmap; network k8s-pod-network
//   - https://github.com/projectcalico/calico/pull/9881 (merged 2025): bandwidth limits by tc qdisc on the cali device
//   - https://docs.tigera.io/calico/latest/networking/configuring/qos-controls.md (3.32): it honours kubernetes.io/*-bandwidth
//   - https://github.com/projectcalico/calico/commit/7304c5b2e9 (v3.30.0): the first release that honours kubernetes.io/*-bandwidth; qos.projectcalico.org annotations override the number
//   - https://github.com/projectcalico/calico/blob/04baf82929c489926b9587e37fafe6d56b9cda48/felix/dataplane/linux/qos/qos.go (commit 04baf82929c4): every root tbf is taken for its own

// besideFelix is where podweir attaches beside Calico's agent, which owns the root
// qdisc of the host side from v3.30. Earlier releases do not, and an ifb is right
// there too.
func besideFelix() (egress, ingress Attach) {
	egress, ingress = plainVeth()
	ingress.Place = terms.PlaceIFB
	ingress.Why = "from v3.30 Felix replaces or deletes every root tbf on the host-side device"
	const qos = "from v3.30 Felix makes the ingress qdisc of the host-side device for a pod with a limit of egress"
	egress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: qos}
	ingress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: qos}
	return egress, ingress
}

// BesideFelix returns the profile for a node where Calico's agent may enforce policy beside
// the CNI, and owns root qdiscs of the host side.
func (p *Profile) BesideFelix() *Profile {
	known := func(q QdiscUse) bool { return slices.Contains(felixQdiscs(), q) }
	if p.Family == "calico" || slices.ContainsFunc(p.RootQdiscs, known) {
		return p
	}
	out := *p
	egress, ingress := besideFelix()
	if out.Ingress.Place != terms.PlaceIFB {
		out.Ingress.Place, out.Ingress.Why = ingress.Place, ingress.Why
	}
	for attach, more := range map[*Attach]map[terms.Mode]string{&out.Egress: egress.Refused, &out.Ingress: ingress.Refused} {
		all := maps.Clone(more)
		maps.Copy(all, attach.Refused)
		attach.Refused = all
	}
	out.Hooks = slices.Concat(p.Hooks, felixHooks())
	out.RootQdiscs = slices.Concat(p.RootQdiscs, felixQdiscs())
	return &out
}

func calico() []*Profile {
	egress, ingress := besideFelix()
	base := Profile{
		Family: "calico", Plugins: []string{"calico"},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-calico.conflist", Installed},
			{SignalFile, "opt/cni/bin/calico", Installed},
			{SignalProcess, "calico-node", Running},
			{SignalFile, "var/lib/calico/nodename", Once},
		},
		Device: terms.DeviceVeth,
		Hooks:  felixHooks(), RootQdiscs: felixQdiscs(),
		SharesAnnotations: Yes, // from v3.30; annotations of qos.projectcalico.org override the number, they do not make Calico let go
		Conflist:          calicoConflist(),
		Conflicts:         calicoConflicts(),
		Read:              []Ruling{RulingDevice, RulingHooks, RulingQdiscs, RulingShares, RulingEgress, RulingIngress, RulingConflist},
		Unknowns:          []string{"not run; what Felix does with root qdiscs was seen with its nftables dataplane"},
	}
	tables := base
	tables.Name, tables.Title = "calico", "Calico, iptables or nftables dataplane"
	tables.When = []Condition{{FactCalicoDataplane, "tables"}}
	tables.Bypass, tables.BypassWhy = No, "packets are routed to the cali device; policy is netfilter"
	tables.Egress, tables.Ingress = egress, ingress

	canal := tables
	canal.Name, canal.Title = "canal", "canal: Calico policy, flannel routes"
	canal.When = []Condition{{FactCalicoDataplane, "tables"}, {FactFlannelDelegate, "calico"}}
	canal.Plugins = []string{"calico", "flannel"}
	canal.Signals = append([]Signal{{SignalFile, "etc/cni/net.d/10-canal.conflist", Installed}}, base.Signals...)
	canal.Conflist.File = "10-canal.conflist"

	canal.Tried, canal.Unknowns = []string{"canal-3.31"}, nil
	tables.Tried, tables.Unknowns = []string{"calico-3.31", "calico-3.31-nftables"}, nil
	return []*Profile{calicoBPF(base), &canal, &tables}
}

func calicoBPF(p Profile) *Profile {
	const noClsact = "Calico's programs end the chain and its preference is not fixed; it removes the ingress qdisc that it did not make"
	p.Name, p.Title, p.Fallback = "calico-ebpf", "Calico, eBPF dataplane", true
	p.When = []Condition{{FactCalicoDataplane, "bpf"}}
	p.Signals = append(p.Signals, Signal{SignalProgram, "cali_tc_preambl", Running}, Signal{SignalProgram, "cali_tcx_", Running})
	for _, kind := range []terms.HookKind{terms.HookKindTCX, terms.HookKindClsact} {
		for _, d := range []terms.Hook{terms.HookIngress, terms.HookEgress} {
			p.Hooks = append(p.Hooks, HookUse{
				kind, d,
				[]string{"cali_*"},
				Yes,
				"bpfAttachType: TCX where kernel and release have it (merged in June 2025), else clsact; changing over removes the programs of the other kind",
			})
		}
	}
	// A program that redirects to the peer is a knob of its attach point
	// (RedirectPeer in felix/bpf/tc/attach.go).
	p.Bypass, p.BypassWhy = Unknown, "it has a redirect to the peer device; no source says when it is on"
	egress, ingress := plainVeth()
	ingress.Place, ingress.Why = terms.PlaceIFB, "the ingress queue is where it is never bypassed"
	egress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: noClsact}
	ingress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: noClsact}
	p.Egress, p.Ingress = egress, ingress
	// https://github.com/projectcalico/calico/pull/10573 (merged 2025-06): TCX support, pins under /sys/fs/bpf/tc/globals/tcx
	// https://github.com/projectcalico/calico/blob/00ab648769b5a3c8f85baa63a5dcabb3e6e4ff19/felix/bpf/tc/attach.go (commit 00ab648769b5): program names, redirect to the peer, clsact, removal of its own QoS qdiscs
	p.Read = append(p.Read, RulingBypass)
	p.Unknowns = append(p.Unknowns, "its verdicts, read from the names only; where in the TCX list it attaches; netkit")
	return &p
}
