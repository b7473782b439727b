// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import "github.com/podweir/podweir/plugin/terms"

// npaNoClsact is the reason against clsact on a device of the Network Policy
// Agent.
const npaNoClsact = "the Network Policy Agent answers TC_ACT_OK at preference 1, so nothing behind it runs, " +
	"and it deletes other programs' filters with handle 1"

func awsSignals() []Signal {
	return []Signal{
		{SignalFile, "etc/cni/net.d/10-aws.conflist", Installed},
		{SignalFile, "opt/cni/bin/aws-cni", Installed},
		{SignalSocket, "/var/run/aws-node/ipamd.sock", Running},
		{SignalProcess, "aws-k8s-agent", Running},
		{SignalFile, "run/aws-node/ipam.json", Once},
	}
}

func awsConflist() ConflistPolicy {
	return ConflistPolicy{
		File:        "10-aws.conflist",
		ReadySocket: "/var/run/aws-node/ipamd.sock",
	}
}

func aws() []*Profile {
	egress, ingress := plainVeth()
	ingress.Why += "; a packet that policy drops costs nothing"
	npaEgress, npaIngress := egress, ingress
	npaEgress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: npaNoClsact}
	npaIngress.Refused = map[terms.Mode]string{terms.ModeClsactHostSide: npaNoClsact}
	base := Profile{
		Family: "aws", Plugins: []string{"aws-cni"}, Signals: awsSignals(),
		Device: terms.DeviceVeth, Bypass: No,
		BypassWhy:         "packets are routed to the host-side veth; the reference bandwidth plugin's tbf there works",
		SharesAnnotations: No, // but for ENABLE_BANDWIDTH_PLUGIN=true, which chains the reference plugin
		Conflist:          awsConflist(), Read: everyRuling,
	}
	without, with, felix := base, base, base
	without.Name, without.Title = "aws-vpc-cni", "AWS VPC CNI"
	without.When = []Condition{{FactNPA, "no"}}
	without.Egress, without.Ingress = egress, ingress
	without.Conflicts = awsConflicts()[1:]
	with.Name, with.Title = "aws-vpc-cni-npa", "AWS VPC CNI with the Network Policy Agent"
	with.When, with.Fallback = []Condition{{FactNPA, "yes"}}, true
	with.Tried = []string{"aws-npa", "aws-npa-upgraded", "aws-npa-strict"}
	with.Egress, with.Ingress = npaEgress, npaIngress
	with.Hooks = []HookUse{
		{terms.HookKindClsact, terms.HookIngress, []string{"handle_egress"}, Yes, "pod egress policy; cls_bpf, preference 1, handle 1"},
		{terms.HookKindClsact, terms.HookEgress, []string{"handle_ingress"}, Yes, "pod ingress policy; cls_bpf, preference 1, handle 1"},
	}
	with.Signals = append(awsSignals(),
		Signal{SignalSocket, "/var/run/aws-node/npa.sock", Running},
		Signal{SignalProgram, "handle_ingress", Running},
		Signal{SignalFile, "sys/fs/bpf/globals/aws/maps/global_aws_conntrack_map", Once},
		Signal{SignalFile, "opt/cni/bin/aws-eks-na-cli", Once},
	)
	with.Conflicts = awsConflicts()
	felix.Name, felix.Title = "aws-vpc-cni-calico", "AWS VPC CNI with Calico's policy"
	felix.When = []Condition{{FactNPA, "no"}, {FactFelixQueues, "yes"}}
	felix.Egress, felix.Ingress = besideFelix()
	felix.Hooks, felix.RootQdiscs = felixHooks(), felixQdiscs()
	felix.SharesAnnotations = Yes // from v3.30
	felix.Signals = awsSignals()  // that Felix runs is no sign of the VPC CNI
	felix.Conflicts = append(calicoConflicts(), awsConflicts()[2:]...)
	felix.Read = []Ruling{RulingSigns, RulingDevice, RulingBypass, RulingHooks, RulingQdiscs, RulingShares, RulingConflist}
	felix.Unknowns = []string{"not run with Felix; it is taken to own devices with the prefix eni as it owns cali devices"}
	return []*Profile{&with, &felix, &without}
}

func awsConflicts() []Conflict {
	return []Conflict{
		{
			"a chained bandwidth plugin and the Network Policy Agent",
			"VPC CNI 1.19.3 and later: pods with an egress limit cannot start; earlier: policy is not enforced",
			"set ENABLE_BANDWIDTH_PLUGIN=false on aws-node",
		},
		bandwidthConflict(),
		{
			"Cilium chained on aws-cni", "Cilium deletes the Network Policy Agent's filters from every device it attaches to",
			"use one policy engine",
		},
		{
			"a foreign ingress qdisc on the pod's veth", "the Network Policy Agent takes it for clsact and attaches to the wrong hook",
			"delete the qdisc and restart the pod",
		},
	}
}

// Where what is said of AWS's CNI and policy agent was read:
//
//   - https://github.com/aws/aws-network-policy-agent/blob/c8619c056b4c/pkg/ebpf/bpf_client.go (after v1.4.1 (c8619c056b4c)): hooks, preference, handle, clean-up
//   - https://github.com/aws/aws-ebpf-sdk-go/blob/v1.0.15/pkg/tc/tc.go (v1.0.15): clsact and cls_bpf only; filters removed, not qdiscs
//   - https://github.com/aws/amazon-vpc-cni-k8s/blob/b52188387f2e/cmd/aws-vpc-cni/main.go (v1.23.1 (b52188387f2e)): how the conflist is written
//   - https://github.com/aws/aws-network-policy-agent/issues/68 (open on 2026-09-07): bandwidth plugin and policy exclude each other
