// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import "github.com/podweir/podweir/plugin/terms"

// The CNIs in this file switch packets between devices in Open vSwitch, or are
// run by a cloud. Of most of them only the configuration was read.

func antrea() []*Profile {
	egress, ingress := plainVeth()
	return []*Profile{{
		Name: "antrea", Title: "Antrea", Family: "antrea", Plugins: []string{"antrea"},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-antrea.conflist", Installed},
			{SignalFile, "opt/cni/bin/antrea", Installed},
			{SignalProcess, "antrea-agent", Running},
			{SignalDevice, "antrea-gw0", Running},
		},
		Device: terms.DeviceVeth, Hooks: []HookUse{{terms.HookKindOVS, terms.HookIngress, nil, Yes, "the host-side device is a port of the OVS bridge br-int"}},
		RootQdiscs:        []QdiscUse{{"host-side device and its bwp ifb", "tbf", "the value cni.plugins.bandwidth chains the reference plugin"}},
		Bypass:            No,
		BypassWhy:         "Open vSwitch sends to the pod through the host-side device, without hardware offload",
		SharesAnnotations: Unknown,
		Egress:            egress, Ingress: ingress,
		Conflist: ConflistPolicy{
			File:        "10-antrea.conflist",
			ReadySocket: "/var/run/antrea/cni.sock",
		},
		Conflicts: []Conflict{bandwidthConflict()},
		// https://github.com/antrea-io/antrea/blob/80285fc2cdfce45611d284eee4e19da5b1192459/build/charts/antrea/conf/antrea-cni.conflist (commit 80285fc2cdfc): chain antrea, portmap, bandwidth; network antrea
		Unknowns: []string{"hardware offload of OVS, which would bypass the queue"},
		Read:     []Ruling{RulingQdiscs, RulingShares, RulingConflist},
	}}
}

func kubeOVN() []*Profile {
	egress, ingress := plainVeth()
	return []*Profile{{
		Name: "kube-ovn", Title: "Kube-OVN", Family: "kube-ovn", Plugins: []string{"kube-ovn"},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/01-kube-ovn.conflist", Installed},
			{SignalFile, "etc/cni/net.d/00-kube-ovn.conflist", Installed},
			{SignalFile, "etc/cni/net.d/kube-ovn.conflist", Installed},
			{SignalFile, "opt/cni/bin/kube-ovn", Installed},
			{SignalProcess, "kube-ovn-daemon", Running},
			{SignalDevice, "ovn0", Running},
		},
		Device: terms.DeviceVeth, Hooks: []HookUse{{terms.HookKindOVS, terms.HookIngress, nil, Yes, "the host-side device is a port of the OVS bridge br-int"}},
		Bypass:            No,
		BypassWhy:         "Open vSwitch sends to the pod through the host-side device, without hardware offload",
		SharesAnnotations: Unknown,
		Egress:            egress, Ingress: ingress,
		Conflist: ConflistPolicy{
			File: "01-kube-ovn.conflist",
		},
		Conflicts: []Conflict{
			{
				"a conflist named 00-kube-ovn.conflist", "it sorts before 00-podweir-*: podweir is not in the chain in force",
				"have Kube-OVN write 01-kube-ovn.conflist, or use the delivery drop-in",
			},
			bandwidthConflict(),
		},
		// https://github.com/kubeovn/kube-ovn/blob/bb63f8ca3fa8161841b999deb2df351f0214a675/dist/images/00-kube-ovn.conflist (commit bb63f8ca3fa8): name of the file
		// https://github.com/kubeovn/kube-ovn/blob/4bae20e8e47b53b0a629b2139f2edf82c5708ea4/dist/windows/01-kube-ovn.conflist (commit 4bae20e8e47b): name of the file in later releases
		Unknowns: []string{"QoS that it sets on OVS ports", "hardware offload of OVS"},
		Read:     []Ruling{RulingConflist},
	}}
}

func azure() []*Profile {
	egress, ingress := plainVeth()
	return []*Profile{{
		Name: "azure-vnet", Title: "Azure CNI", Family: "azure", Plugins: []string{"azure-vnet"},
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-azure.conflist", Installed},
			{SignalFile, "etc/cni/net.d/15-azure-swift-overlay.conflist", Installed},
			{SignalFile, "opt/cni/bin/azure-vnet", Installed},
			{SignalFile, "run/azure-vnet.json", Once},
			{SignalDevice, "azure0", Running},
		},
		Device: terms.DeviceVeth, Bypass: No,
		BypassWhy:         "bridge mode: a port of azure0; transparent mode: packets are routed to the host-side device",
		SharesAnnotations: No, Egress: egress, Ingress: ingress,
		Conflist: ConflistPolicy{
			File: "10-azure.conflist",
		},
		Conflicts: []Conflict{{
			"Azure CNI powered by Cilium", "it is Cilium, with azure-ipam: the profile of Cilium applies", "nothing",
		}, bandwidthConflict()},
		// https://github.com/Azure/azure-container-networking/blob/4e429597dee64e9dc65cc1cdfb5a4b590d9b92fc/cni/azure-linux.conflist (commit 4e429597dee6): chain azure-vnet, portmap; network azure
		// https://github.com/vipul-21/azure-container-networking/blob/0bc72e46c113a35a40c26974bdfea8e2daa86b5d/cni/azure-linux-swift-overlay.conflist (commit 0bc72e46c113 of a fork): the overlay's chain azure-vnet in transparent mode, portmap; network azure
		Unknowns: []string{"multitenancy and transparent-vlan modes"},
	}}
}
