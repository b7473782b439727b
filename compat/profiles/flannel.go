// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import "github.com/podweir/podweir/plugin/terms"

func flannel() []*Profile {
	egress, ingress := plainVeth()
	return []*Profile{{
		Name: "flannel", Tried: []string{"flannel-host-gw", "flannel-vxlan"}, Title: "flannel", Family: "flannel", Plugins: []string{"flannel"}, Fallback: true,
		Signals: []Signal{
			{SignalFile, "etc/cni/net.d/10-flannel.conflist", Installed},
			{SignalFile, "opt/cni/bin/flannel", Installed},
			{SignalProcess, "flanneld", Running},
			{SignalFile, "run/flannel/subnet.env", Once},
		},
		Device: terms.DeviceVeth, Bypass: No,
		BypassWhy:         "the plugin calls bridge; the host-side device is a port of cni0",
		SharesAnnotations: No, Egress: egress, Ingress: ingress,
		Conflist: ConflistPolicy{
			File: "10-flannel.conflist",
		},
		// https://github.com/flannel-io/flannel/blob/master/Documentation/kube-flannel.yml (not read again; layout as in k3s): chain flannel, portmap
	}}
}

// k3s and RKE2 bring their own copies of others' CNIs, in other directories.
func k3s() []*Profile {
	egress, ingress := plainVeth()
	felixEgress, felixIngress := besideFelix()
	return []*Profile{
		{
			Name: "k3s-flannel", Title: "flannel as bundled with k3s", Family: "flannel", Plugins: []string{"flannel"},
			When: []Condition{{FactDistribution, "k3s"}},
			Signals: []Signal{
				{SignalFile, "var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist", Installed},
				{SignalFile, "run/k3s/containerd/containerd.sock", Once},
				{SignalSocket, "/run/k3s/containerd/containerd.sock", Running},
			},
			Device: terms.DeviceVeth, Bypass: No,
			BypassWhy:         "the plugin calls bridge; the host-side device is a port of cni0",
			SharesAnnotations: Yes, // the bundled chain ends with the reference bandwidth plugin
			Egress:            egress, Ingress: ingress,
			RootQdiscs: []QdiscUse{{"host-side device and its bwp ifb", "tbf", "the pod has a bandwidth annotation: the chained bandwidth plugin"}},
			Conflist: ConflistPolicy{
				File:    "10-flannel.conflist",
				BinDirs: []string{"var/lib/rancher/k3s/data/cni", "var/lib/rancher/k3s/data/current/bin"},
			},
			Conflicts: []Conflict{bandwidthConflict()},
			// https://github.com/k3s-io/k3s/blob/638b0c473964430e42a6af5ba7946115106f4444/pkg/agent/flannel/setup_linux.go (commit 638b0c473964): chain flannel, portmap, bandwidth; network cbr0
			// https://github.com/k3s-io/k3s/blob/05f0cdf08065bcfdbbfd1e6dbc5a5bf14d2bd984/pkg/agent/flannel/setup.go (commit 05f0cdf08065): the file is written at every start
			Read: []Ruling{RulingQdiscs, RulingShares, RulingConflist},
		},
		{
			Name: "rke2-canal", Title: "canal as bundled with RKE2", Family: "calico", Plugins: []string{"calico"},
			When: []Condition{{FactDistribution, "rke2"}, {FactFlannelDelegate, "calico"}, {FactCalicoDataplane, "tables"}},
			Signals: []Signal{
				{SignalFile, "etc/cni/net.d/10-canal.conflist", Installed},
				{SignalFile, "var/lib/rancher/rke2/bin", Installed},
				{SignalProcess, "calico-node", Running},
			},
			Device: terms.DeviceVeth, Bypass: No, BypassWhy: "packets are routed to the cali device; policy is iptables",
			Hooks: felixHooks(), RootQdiscs: felixQdiscs(),
			SharesAnnotations: Unknown,
			Egress:            felixEgress, Ingress: felixIngress,
			Conflist: ConflistPolicy{
				File: "10-canal.conflist",
			},
			Conflicts: calicoConflicts(),
			// https://docs.rke2.io/networking/basic_network_options (not read; layout as in Calico's canal manifest): canal is the default
			Read: []Ruling{RulingHooks, RulingQdiscs},
		},
	}
}

// bandwidthConflict is what happens with the reference plugin in the chain.
func bandwidthConflict() Conflict {
	return Conflict{
		With:   "a chained bandwidth plugin",
		Effect: "two shapers on one annotation: the lower queue rules and the higher one only delays",
		Do:     "podweir's chain takes its place; with another delivery, take it out of the primary CNI's configuration",
	}
}
