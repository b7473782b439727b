// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import (
	"slices"

	"github.com/podweir/podweir/plugin/terms"
)

func ciliumSignals() []Signal {
	return []Signal{
		{SignalFile, "etc/cni/net.d/05-cilium.conflist", Installed},
		{SignalFile, "opt/cni/bin/cilium-cni", Installed},
		{SignalSocket, "/var/run/cilium/cilium.sock", Running},
		{SignalProcess, "cilium-agent", Running},
		{SignalDevice, "cilium_host", Once},
		{SignalFile, "sys/fs/bpf/tc/globals/cilium_throttle", Once},
		{SignalProgram, "cil_", Once},
	}
}

// handedEntry is podweir's entry for a chain that Cilium writes, with the place of
// the ingress queue that is right whatever Cilium's routing is: the agent, which
// knows it, cannot write there. It has no settings of the operator's; see
// [Profile.WithEntry].
const handedEntry = `{"type":"podweir-cni","capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true},"hostHook":"tcx","ingressPlace":"prefer-ifb"}`

// ciliumUpgrade changes one setting of the release that runs: without its version
// Helm would take the newest.
const ciliumUpgrade = "helm upgrade cilium cilium/cilium --version " + AnyRelease + " --namespace kube-system --reuse-values --set "

// CiliumWithoutManager is the command that turns Cilium's bandwidth manager off;
// see [Command].
const CiliumWithoutManager = ciliumUpgrade + "bandwidthManager.enabled=false"

func ciliumConflist() ConflistPolicy {
	return ConflistPolicy{
		File:           "05-cilium.conflist",
		MayBeExclusive: true,
		ReadySocket:    "/var/run/cilium/cilium.sock",
		HandedDo: []string{
			"jq '.plugins += [" + handedEntry + "]' /etc/cni/net.d/05-cilium.conflist > cni-config",
			"kubectl -n kube-system create configmap podweir-cni-configuration --from-file=cni-config",
			ciliumUpgrade + "cni.configMap=podweir-cni-configuration",
			"kubectl -n kube-system rollout restart daemonset/cilium",
		},
		HandedAgainDo: []string{
			`jq '(.plugins[] | select(.type == "podweir-cni")) = ` + handedEntry + `' /etc/cni/net.d/05-cilium.conflist > cni-config`,
			"kubectl -n kube-system create configmap podweir-cni-configuration --from-file=cni-config --dry-run=client -o yaml | kubectl replace -f -",
			"kubectl -n kube-system rollout restart daemonset/cilium",
		},
		ShareDo: []string{
			ciliumUpgrade + "cni.exclusive=false",
			"kubectl -n kube-system rollout restart daemonset/cilium",
		},
	}
}

// Where what is said of Cilium was read:
//
//   - https://github.com/cilium/cilium/blob/v1.20.2/daemon/cmd/cni/config.go (v1.20.2): exclusive mode, file names, chaining modes
//   - https://github.com/cilium/cilium/blob/v1.20.2/pkg/datapath/loader/tcx.go (v1.20.2): TCX links at the tail, updated in place
//   - https://github.com/cilium/cilium/blob/v1.20.2/pkg/datapath/loader/tc.go (v1.20.2): legacy filters of all programs are removed after a TCX attach
//   - https://github.com/cilium/cilium/blob/v1.20.2/bpf/lib/local_delivery.h (v1.20.2): redirect to the peer: what bypasses the host-side device
//   - https://github.com/cilium/cilium/blob/v1.20.2/pkg/datapath/linux/bandwidth/bandwidth.go (v1.20.2): bandwidth manager
//   - https://github.com/cilium/cilium/blob/v1.20.2/bpf/bpf_host.c (v1.20.2): with legacy host routing packets go to the stack before the policer for ingress

func ciliumConflicts() []Conflict {
	return []Conflict{
		{
			"Cilium's bandwidth manager",
			"it enforces kubernetes.io/egress-bandwidth, and ingress-bandwidth from 1.18 with BPF host routing: two shapers on one annotation",
			"podweir defers to it for the directions it handles; or: " + CiliumWithoutManager,
		},
		bandwidthConflict(),
		{"cni.exclusive=true", "every conflist of others is renamed, ours too", "use the drop-in directory (containerd 2.1, CRI-O 1.33 or newer), or cni.configMap"},
		{"cni.uninstall=true", "files in the directory of conflists with cilium in their name are deleted", "podweir's file has no cilium in its name"},
	}
}

// ciliumNoClsact is the reason against clsact on a device of Cilium's.
const ciliumNoClsact = "Cilium deletes legacy filters of others at every regeneration of the endpoint"

func fromContainer(kind terms.HookKind) HookUse {
	return HookUse{kind, terms.HookIngress, []string{"cil_from_contai*"}, Yes, "pod egress; always"}
}

func toContainer(kind terms.HookKind) HookUse {
	return HookUse{kind, terms.HookEgress, []string{"cil_to_containe*"}, Yes, "pod ingress; with endpoint routes or chaining"}
}

// eitherWay is a program of Cilium's that is on TCX from 1.16 on, and a legacy
// filter before or with enable-tcx=false.
func eitherWay(program func(terms.HookKind) HookUse) []HookUse {
	tcx, filter := program(terms.HookKindTCX), program(terms.HookKindClsact)
	tcx.Note += "; from 1.16 on, where the kernel has TCX"
	filter.Note += "; in 1.15, or with enable-tcx=false"
	return []HookUse{tcx, filter}
}

// https://github.com/cilium/cilium/blob/v1.15.19/pkg/datapath/loader/loader.go (v1.15.19): legacy filters on the egress side are removed at every regeneration

// besideCilium is where podweir attaches; bypass puts the ingress queue into the
// pod's namespace.
func besideCilium(bypass bool) (egress, ingress Attach) {
	egress, ingress = plainVeth()
	egress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: ciliumNoClsact}
	ingress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: ciliumNoClsact}
	if bypass {
		ingress.Place = terms.PlaceIFB
		ingress.Why = "packets are redirected past the host-side device: only the pod-side ingress hook sees them all"
		ingress.Refused[terms.ModeTCXHostSide] = "the host-side egress hook sees only packets from the node itself"
	}
	return egress, ingress
}

func ciliumBase(bypass bool) Profile {
	p := Profile{
		Family: "cilium", Plugins: []string{"cilium-cni"}, Signals: ciliumSignals(),
		Device: terms.DeviceVeth, Hooks: []HookUse{fromContainer(terms.HookKindTCX)},
		RootQdiscs: []QdiscUse{{"the node's own devices", "mq with fq, or fq", "bandwidth manager on"}},
		Bypass:     Is(bypass), SharesAnnotations: Unknown, // with the bandwidth manager: egress, and ingress from 1.18 with BPF host routing
		Conflist:  ciliumConflist(),
		Conflicts: ciliumConflicts(), Read: everyRuling,
	}
	p.Egress, p.Ingress = besideCilium(bypass)
	p.BypassWhy = "legacy host routing: packets pass the stack and the host-side device"
	if bypass {
		p.BypassWhy = "BPF host routing redirects to the peer device"
	}
	return p
}

func cilium() []*Profile {
	veth := ciliumBase(true)
	veth.Name, veth.Title, veth.Fallback = "cilium", "Cilium, veth, BPF host routing", true
	veth.When = []Condition{{FactCiliumDatapath, "veth"}, {FactCiliumRouting, "BPF"}}
	veth.Hooks = append(veth.Hooks, toContainer(terms.HookKindTCX))
	veth.Tried = []string{"cilium-1.20-bpf", "cilium-1.20-endpoint-routes", "cilium-1.20-podweir-first"}

	legacyRouting := ciliumBase(false)
	legacyRouting.Name, legacyRouting.Title = "cilium-legacy-routing", "Cilium, veth, legacy host routing (kube-proxy)"
	legacyRouting.Tried = []string{"cilium-1.20-legacy", "cilium-1.20-shared"}
	legacyRouting.When = []Condition{{FactCiliumDatapath, "veth"}, {FactCiliumRouting, "Legacy"}}
	legacyRouting.Hooks = eitherWay(fromContainer)

	endpointRoutes := ciliumBase(false)
	endpointRoutes.Name, endpointRoutes.Title = "cilium-endpoint-routes", "Cilium, veth, per-endpoint routes"
	endpointRoutes.When = []Condition{{FactCiliumDatapath, "veth"}, {FactCiliumRouting, "Legacy"}, {FactCiliumEndpointRoutes, "yes"}}
	endpointRoutes.Hooks = slices.Concat(eitherWay(fromContainer), eitherWay(toContainer))

	netkit := ciliumBase(true)
	netkit.Name, netkit.Title, netkit.Device = "cilium-netkit", "Cilium, netkit", terms.DeviceNetkit
	netkit.When = []Condition{{FactCiliumDatapath, "netkit"}}
	netkit.Hooks = []HookUse{fromContainer(terms.HookKindNetkit), toContainer(terms.HookKindNetkit)}
	netkit.BypassWhy = "netkit needs BPF host routing: packets are redirected to the peer device"
	netkit.Unknowns = []string{
		"that packets to the pod bypass the primary's transmit side is concluded from the source, not measured",
	}

	return append([]*Profile{&endpointRoutes, &netkit, &veth, &legacyRouting}, ciliumOther()...)
}

// ciliumOther are Cilium before TCX, and Cilium behind another CNI.
func ciliumOther() []*Profile {
	legacyTC := ciliumBase(true)
	legacyTC.Name, legacyTC.Title = "cilium-legacy-tc", "Cilium with legacy tc (1.15, or enable-tcx=false)"
	legacyTC.Tried = []string{"cilium-1.20-tcx-switched", "cilium-1.15-bpf"}
	legacyTC.When = []Condition{{FactCiliumDatapath, "veth"}, {FactCiliumRouting, "BPF"}, {FactCiliumAttach, "tc"}}
	legacyTC.Hooks = []HookUse{fromContainer(terms.HookKindClsact), toContainer(terms.HookKindClsact)}

	aws := ciliumBase(false)
	aws.Name, aws.Title = "cilium-on-aws", "Cilium chained on the AWS VPC CNI"
	aws.Plugins, aws.Chained = []string{"aws-cni"}, []string{"cilium-cni"}
	aws.Hooks = append(aws.Hooks, toContainer(terms.HookKindTCX))
	aws.Conflicts = append(ciliumConflicts(), Conflict{
		"the Network Policy Agent", "Cilium deletes its filters", "use one policy engine: enableNetworkPolicy \"false\" for the VPC CNI",
	}, sourceLoop())
	aws.Unknowns = []string{"whether BPF host routing can be on in this mode"}

	generic := ciliumBase(false)
	generic.Name, generic.Title = "cilium-on-veth", "Cilium chained on another CNI (generic-veth)"
	generic.Plugins, generic.Chained = []string{"*"}, []string{"cilium-cni"}
	generic.Hooks = append(generic.Hooks, toContainer(terms.HookKindTCX))
	generic.Conflicts = append(ciliumConflicts(), sourceLoop())
	generic.Unknowns = []string{"whether BPF host routing can be on in this mode"}
	for _, p := range []*Profile{&aws, &generic} {
		p.Bypass, p.BypassWhy = Unknown, "no source says; the ingress queue is where it is never bypassed"
		p.Egress, p.Ingress = besideCilium(true)
		p.Ingress.Why = p.BypassWhy
		p.Read = []Ruling{RulingSigns, RulingDevice, RulingHooks, RulingQdiscs, RulingShares, RulingEgress, RulingConflist}
	}
	return []*Profile{&legacyTC, &aws, &generic}
}

// sourceLoop is tried in e2e/cilium: the first file with the target's network
// name is the source of Cilium's own (daemon/cmd/cni/config.go).
func sourceLoop() Conflict {
	return Conflict{
		"podweir's own file, in chaining mode",
		"Cilium builds its file from ours, which has the target network's name and sorts first; podweir is then in both",
		"podweir removes its file once the original has podweir in it",
	}
}

func gke() []*Profile {
	egress, ingress := besideCilium(true)
	ingress.Why = "no source says how packets reach the pod: the ingress queue is where it is never bypassed"
	return []*Profile{{
		Name: "gke-dataplane-v2", Title: "GKE Dataplane V2", Family: "cilium", Plugins: []string{"gke", "ptp"}, Chained: []string{"cilium-cni"},
		When: []Condition{{FactDistribution, "gke"}},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-gke-ptp.conflist", Installed},
			{SignalFile, "etc/cni/net.d/10-gke-cni.conflist", Installed},
			{SignalFile, "home/kubernetes/bin/gke", Installed},
			{SignalSocket, "/var/run/cilium/cilium.sock", Running},
			{SignalProcess, "cilium-agent", Running},
		},
		Device: terms.DeviceVeth,
		Hooks: []HookUse{
			{terms.HookKindClsact, terms.HookIngress, []string{"cil_from_contai*"}, Yes, "pod egress; whether TCX or clsact depends on the release"},
			{terms.HookKindTCX, terms.HookIngress, []string{"cil_from_contai*"}, Yes, "pod egress; whether TCX or clsact depends on the release"},
			{terms.HookKindClsact, terms.HookEgress, []string{"cil_to_containe*"}, Yes, "pod ingress"},
			{terms.HookKindTCX, terms.HookEgress, []string{"cil_to_containe*"}, Yes, "pod ingress"},
		},
		Bypass: Unknown, BypassWhy: "no source says",
		SharesAnnotations: Unknown,
		Egress:            egress, Ingress: ingress,
		Conflist: ConflistPolicy{
			File:    "10-gke-ptp.conflist",
			BinDirs: []string{"home/kubernetes/bin"}, ReadySocket: "/var/run/cilium/cilium.sock",
		},
		Conflicts: []Conflict{bandwidthConflict()},
		// https://github.com/GoogleCloudPlatform/netd/blob/397a0339f01aaa4f6ef574724b93c76900e60ee4/pkg/install-cni/plugin/cilium.go (commit 397a0339f01a): cilium-cni is chained
		// https://github.com/GoogleCloudPlatform/netd/blob/913a2dba05adcd7c94e24d78232d6fea468562a5/pkg/install-cni/plugin/ptp.go (commit 913a2dba05ad): the first plugin is gke, else ptp
		// https://cloud.google.com/kubernetes-engine/docs/concepts/dataplane-v2 (stored copy, date unknown): it is made of Cilium
		Unknowns: []string{"the Cilium release and its datapath settings", "exclusive mode"},
		Read:     []Ruling{RulingShares, RulingConflist},
	}}
}
