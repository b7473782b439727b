// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import "github.com/podweir/podweir/plugin/terms"

// The facts of a node that conditions use. detect fills them.
const (
	// FactCiliumDatapath is veth, netkit or netkit-l2.
	FactCiliumDatapath = "cilium datapath mode"
	// FactCiliumRouting is BPF or Legacy: how packets reach a pod.
	FactCiliumRouting = "cilium host routing"
	// FactCiliumAttach is tcx or tc.
	FactCiliumAttach = "cilium attach mode"
	// FactCiliumEndpointRoutes is yes or no.
	FactCiliumEndpointRoutes = "cilium endpoint routes"
	// FactCiliumChaining is the chaining mode of cilium-cni, empty if it is the
	// main plugin.
	FactCiliumChaining = "cilium chaining mode"
	// FactNPA is yes or no: whether the AWS Network Policy Agent enforces.
	FactNPA = "aws network policy agent enforces"
	// FactFelixQueues is yes or no: whether a Felix runs that enforces bandwidth
	// annotations, and so owns the root qdisc of the host side.
	FactFelixQueues = "felix owns root qdiscs"
	// FactCalicoDataplane is bpf or tables.
	FactCalicoDataplane = "calico dataplane"
	// FactFlannelDelegate is the type that the flannel plugin calls.
	FactFlannelDelegate = "flannel delegate"
	// FactDistribution is k3s, rke2 or gke, empty for any other.
	FactDistribution = "distribution"
	// FactBridge is the bridge that the first plugin names.
	FactBridge = "bridge"
	// FactNetwork is the name of the network in force.
	FactNetwork = "network name"
)

// plainVeth is where podweir attaches beside a CNI that leaves the pod's veth
// alone: on its own queues at both ends.
func plainVeth() (egress, ingress Attach) {
	return Attach{Mode: terms.ModeQdisc, Why: "no other program has a queue on the pod-side device"},
		Attach{Mode: terms.ModeQdisc, Place: terms.PlaceHost, Why: "every packet to the pod leaves through the host-side device, behind all policy"}
}

// Other is the profile of a CNI that is not known: podweir attaches where it does
// no harm whatever the CNI does. It is not in [All].
func Other() *Profile {
	egress, ingress := plainVeth()
	ingress.Place = terms.PlaceIFB
	ingress.Why = "nothing is known of this CNI: the ingress queue is where it is never bypassed"
	for _, a := range []*Attach{&egress, &ingress} {
		a.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: "nothing is known of this CNI: it may have a filter there"}
	}
	return &Profile{
		Name: "other", Title: "a CNI that podweir has no profile of", Family: "other", Fallback: true,
		Device: terms.DeviceUnknown, BypassWhy: "nothing is known of this CNI", Egress: egress, Ingress: ingress,
		Unknowns: []string{"everything"},
	}
}

func reference() []*Profile {
	egress, ingress := plainVeth()
	bridgePort := "the host-side device is a port of a bridge; no program of the plugin is on it"
	return []*Profile{
		{
			Name: "ptp", Tried: []string{"ptp", "ptp-drop-in", "ptp-nri", "ptp-kubernetes-1.34", "ptp-podweir-first", "two-interfaces"}, Title: "ptp (reference plugin)", Family: "reference", Plugins: []string{"ptp"}, Fallback: true,
			Signals: []Signal{{SignalFile, "opt/cni/bin/ptp", Installed}},
			Device:  terms.DeviceVeth, Bypass: No, BypassWhy: "packets are routed to the host-side device",
			SharesAnnotations: No, Egress: egress, Ingress: ingress,
			Conflist: ConflistPolicy{},
			// https://github.com/containernetworking/plugins/blob/v1.9.1/plugins/main/ptp/ptp.go (v1.9.1): a veth pair with routes; no qdisc, no program
			Read: []Ruling{RulingShares},
		},
		{
			Name: "bridge", Tried: []string{"bridge", "bridge-hairpin"}, Title: "bridge (reference plugin)", Family: "reference", Plugins: []string{"bridge"},
			Signals: []Signal{{SignalFile, "opt/cni/bin/bridge", Installed}},
			Device:  terms.DeviceVeth, Bypass: No, BypassWhy: bridgePort,
			SharesAnnotations: No, Egress: egress, Ingress: ingress,
			Conflist: ConflistPolicy{},
			// https://github.com/containernetworking/plugins/blob/v1.9.1/plugins/main/bridge/bridge.go (v1.9.1): a veth pair whose host end is a port of the bridge
			Unknowns: []string{"hardware offload of the bridge past the device's queue"},
			Read:     []Ruling{RulingShares},
		},
	}
}

func kindnet() []*Profile {
	egress, ingress := plainVeth()
	return []*Profile{{
		Name: "kindnet", Title: "kindnet (kind)", Family: "kindnet", Plugins: []string{"ptp"},
		When: []Condition{{FactNetwork, "kindnet"}},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-kindnet.conflist", Installed},
			{SignalProcess, "kindnetd", Running},
		},
		Device: terms.DeviceVeth, Bypass: No, BypassWhy: "packets are routed to the host-side device",
		SharesAnnotations: No, Egress: egress, Ingress: ingress,
		Conflist: ConflistPolicy{
			File: "10-kindnet.conflist",
		},
		// https://github.com/kubernetes-sigs/kind/blob/26637e29987e1759f0bfb6025f335396960c8565/images/kindnetd/cmd/kindnetd/cni.go (commit 26637e29987e): chain ptp, portmap; how the file is written
		Read:     []Ruling{RulingShares, RulingConflist},
		Unknowns: []string{"later kindnet releases with their own plugin"},
	}}
}

func kubeRouter() []*Profile {
	egress, ingress := plainVeth()
	return []*Profile{{
		Name: "kube-router", Tried: []string{"kube-router-2.1"}, Title: "kube-router", Family: "kube-router", Plugins: []string{"bridge"},
		When: []Condition{{FactBridge, "kube-bridge"}},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-kuberouter.conflist", Installed},
			{SignalFile, "etc/cni/net.d/10-kuberouter.conf", Installed},
			{SignalProcess, "kube-router", Running},
			{SignalDevice, "kube-bridge", Running},
		},
		Device: terms.DeviceVeth, Bypass: No, BypassWhy: "the host-side device is a port of kube-bridge; policy is iptables",
		SharesAnnotations: No, Egress: egress, Ingress: ingress,
		Conflist: ConflistPolicy{
			File: "10-kuberouter.conflist",
		},
		// https://github.com/cloudnativelabs/kube-router/blob/master/docs/user-guide.md (stored copy, version unknown): bridge kube-bridge, names of the files
		Read: []Ruling{RulingDevice, RulingConflist},
	}}
}
