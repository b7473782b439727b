// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import "github.com/podweir/podweir/plugin/terms"

// OVN-Kubernetes and Terway enforce the bandwidth annotations by themselves, and
// Multus has another CNI make the interface. None of them could be tried.

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

func ovnKubernetes() []*Profile {
	egress, ingress := plainVeth()
	ingress.Place, ingress.Why = terms.PlaceIFB, "Open vSwitch owns the root qdisc of the host-side device of a pod with kubernetes.io/ingress-bandwidth"
	const police = "Open vSwitch makes the ingress qdisc of the host-side device for a pod with kubernetes.io/egress-bandwidth"
	egress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: police}
	ingress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: police}
	return []*Profile{{
		Name: "ovn-kubernetes", Title: "OVN-Kubernetes", Family: "ovn", Plugins: []string{"ovn-k8s-cni-overlay"},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-ovn-kubernetes.conf", Installed},
			{SignalFile, "opt/cni/bin/ovn-k8s-cni-overlay", Installed},
			{SignalProcess, "ovnkube", Running},
			{SignalDevice, "ovn-k8s-mp0", Running},
		},
		Device: terms.DeviceVeth,
		Hooks: []HookUse{
			{terms.HookKindOVS, terms.HookIngress, nil, Yes, "the host-side device is a port of the OVS bridge br-int"},
			{terms.HookKindIngressQdisc, terms.HookIngress, nil, No, "ingress_policing_rate, for a pod with kubernetes.io/egress-bandwidth"},
		},
		RootQdiscs: []QdiscUse{{"host-side device", "htb", "the pod has kubernetes.io/ingress-bandwidth (QoS of the type linux-htb)"}},
		Bypass:     No, BypassWhy: "Open vSwitch sends to the pod through the host-side device, without hardware offload",
		SharesAnnotations: Yes, Shaper: terms.ShaperOVN, // at ADD; no setting ends that
		Egress: egress, Ingress: ingress,
		Conflist: ConflistPolicy{
			File: "10-ovn-kubernetes.conf",
		},
		Conflicts: []Conflict{
			{"OVN-Kubernetes' own limits", "two shapers on one annotation: the lower one rules, and egress is policed, which TCP uses badly", ownKeys},
			bandwidthConflict(),
		},
		// https://github.com/ovn-kubernetes/ovn-kubernetes/blob/3b94d1670d6c794482613ebb04fdc1cfe51b1b18/go-controller/pkg/cni/bandwidth.go (commit 3b94d1670d6c): linux-htb for ingress, ingress_policing_rate and a tenth of it as burst for egress
		// https://github.com/openshift/cluster-network-operator/pull/568 (closed, 2020): name of the file, and where OpenShift's Multus waits for it
		Unknowns: []string{"hardware offload of OVS, which would bypass a queue on the host side", "user-defined networks: more than one interface"},
		Read:     []Ruling{RulingQdiscs, RulingShares, RulingConflist},
	}}
}

func terway() []*Profile {
	other := Other()
	return []*Profile{{
		Name: "terway", Title: "Terway (Alibaba Cloud)", Family: "terway", Plugins: []string{"terway"},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-terway.conf", Installed},
			{SignalFile, "etc/cni/net.d/10-terway.conflist", Installed},
			{SignalFile, "opt/cni/bin/terway", Installed},
			{SignalProcess, "terwayd", Running},
		},
		Device:            terms.DeviceUnknown,
		RootQdiscs:        []QdiscUse{{"the pod's devices", "tbf", `10-terway.conf has "capabilities": {"bandwidth": true}; departure times in datapath v2`}},
		BypassWhy:         "a veth, an ipvlan or a whole network card, as Terway is configured: podweir shapes the veth alone",
		SharesAnnotations: Yes, // if 10-terway.conf has the capability bandwidth; terway-qos reads running pods, too
		Egress:            other.Egress, Ingress: other.Ingress,
		Conflist: ConflistPolicy{File: "10-terway.conflist"},
		Conflicts: []Conflict{
			{"Terway's own limits and terway-qos", "two shapers on one annotation", "take the bandwidth capability out of the ConfigMap eni-config and do not install terway-qos, or " + ownKeys},
			bandwidthConflict(),
		},
		// https://github.com/AliyunContainerService/terway (commit 89aadf8b, 2026-07-23): tbf, or departure times in datapath v2; it reads the CNI capability bandwidth
		// https://github.com/AliyunContainerService/terway-qos (commit a625936, 2025-01): departure times for egress, policing for ingress, annotations read live
		Unknowns: []string{"ipvlan and exclusive network cards: no veth, so podweir cannot shape them", "datapath v2 chains cilium-cni"},
		Read:     []Ruling{RulingBypass, RulingShares},
	}}
}

func multus() []*Profile {
	other := Other()
	return []*Profile{{
		Name: "multus", Title: "Multus in front of another CNI", Family: "multus", Plugins: []string{"multus", "multus-shim"},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/00-multus.conf", Installed},
			{SignalFile, "etc/cni/net.d/multus.d/multus.kubeconfig", Installed},
			{SignalFile, "opt/cni/bin/multus", Installed},
			{SignalFile, "opt/cni/bin/multus-shim", Installed},
			{SignalProcess, "multus-daemon", Running},
		},
		Device: terms.DeviceUnknown, BypassWhy: "the CNI behind Multus makes the interface",
		SharesAnnotations: Unknown,
		Egress:            other.Egress, Ingress: other.Ingress,
		Conflist: ConflistPolicy{
			File:    "00-multus.conf",
			BinDirs: []string{"var/lib/cni/bin"},
		},
		Conflicts: []Conflict{{
			"the generated 00-multus.conf", "a chain of podweir's beside it is not in force, and Multus may take podweir's file for that of the CNI behind it",
			"use the delivery nri or watch, or name the file of the CNI behind it by --multus-master-cni-file-name",
		}, bandwidthConflict()},
		// https://github.com/k8snetworkplumbingwg/multus-cni/blob/37adefba512085d8d5ea5933b5f6c338c8f8ad10/docs/how-to-use.md (commit 37adefba5120): 00-multus.conf is made of the first file in the directory, or of the one that an option names
		// https://github.com/openshift/cluster-network-operator/pull/484 (merged, 2020): OpenShift's directories
		Unknowns: []string{"secondary interfaces: podweir shapes those for which the runtime calls it", "which CNI is behind it: its hooks and queues are not known"},
		Read:     []Ruling{RulingDevice, RulingBypass, RulingShares, RulingConflist},
	}}
}
