// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"errors"
	"strings"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/terms"
)

// managed is a node whose Cilium enforces the annotations, as far as its version
// goes, with keys in podweir's entry.
func managed(version, keys string) func(*node) {
	return func(n *node) {
		n.live = agent{health: `{"cilium":{"msg":"` + version + ` (v` + version + `-abc)"},"routing":{"intra-host-routing-mode":"BPF"},` +
			`"bandwidth-manager":{"enabled":true}}`}
		n.files[net+"cilium/50-podweir.conf"] = strings.TrimSuffix(conflist.DefaultEntry, "}") + keys + "}"
	}
}

// felix is a node whose Felix enforces the annotations, with keys in podweir's entry
// and a queue on the pod's device.
func felix(keys string, bitsPerSec uint64) func(*node) {
	return func(n *node) {
		const own = net + "00-podweir-10-calico.conflist"
		n.files[own] = strings.Replace(n.files[own], `"type":"podweir-cni"`, `"type":"podweir-cni"`+keys, 1)
		n.files["sys/class/net/bwcali0123456789/dummy"] = ""
		n.kernel.attached[0].Direction, n.kernel.attached[0].Place = "ingress", terms.PlaceIFB
		n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "tbf", Root: true, BitsPerSec: bitsPerSec}}
		n.kernel.attached[0].Device = n.kernel.devices[0].Name
	}
}

// ovn is a node of OVN-Kubernetes that is well.
func ovn() *node {
	n := withoutCNI()
	n.sockets = []string{"/x"}
	n.files["proc/9/comm"] = "ovnkube\n"
	n.files[net+"10-ovn-kubernetes.conf"] = `{"cniVersion":"0.4.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}`
	n.spliceIn("10-ovn-kubernetes.conf")
	return n
}

// openShift is one where Multus is in front of it.
func openShift() *node {
	n := withoutCNI()
	n.sockets = []string{"/x"}
	n.files["proc/9/comm"] = "ovnkube\n"
	n.files[net+"00-multus.conf"] = `{"cniVersion":"1.0.0","name":"multus","type":"multus-shim"}`
	return n
}

// terway is a node of Terway's whose plugin has these keys, too.
func terway(keys string) func() *node {
	return func() *node {
		n := withoutCNI()
		n.sockets = []string{"/x"}
		n.files["proc/9/comm"] = "terwayd\n"
		n.files[net+"10-terway.conf"] = `{"cniVersion":"0.4.0","name":"terway","type":"terway"` + keys + `}`
		n.spliceIn("10-terway.conf")
		return n
	}
}

// limitedTwice has the runtime pass limits for the pod that podweir shapes.
func limitedTwice(n *node) {
	const both = `{"bandwidth":{"ingressRate":1000000,"egressRate":1000000}}`
	n.files[results+"cilium-c1-eth0"] = cached("c1", both)
	n.kernel.attached = []doctor.Attachment{
		{Pod: "default/early", Direction: "egress", ContainerID: "c1", Queue: "tbf"},
		{Pod: "default/early", Direction: "ingress", ContainerID: "c1", Queue: "tbf", Place: terms.PlaceIFB},
	}
}

// leftTo gives limits to another shaper in podweir's entry.
func leftTo(file, shaper string) func(*node) {
	return func(n *node) {
		n.files[file] = strings.Replace(n.files[file], `"type":"podweir-cni"`, `"type":"podweir-cni","shaper":"`+shaper+`"`, 1)
		n.kernel.attached = nil
	}
}

func ovsQueue(n *node) { n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "htb", Root: true}} }

func idle(f func(*node)) func(*node) {
	return func(n *node) { f(n); n.kernel.attached = nil }
}

func shaperFindings() []finding {
	const both, egress = `,"shaper":"cilium"`, `,"egressShaper":"cilium"`
	seen := func(keys string) func(*node) {
		return func(n *node) {
			managed("1.20.2", keys)(n)
			n.files[results+"cilium-c2-eth0"] = cached("c2", limited)
		}
	}
	return []finding{
		{"two shapers", "PW403", cilium, managed("1.20.2", ""), doctor.Warn, "podweir shapes egress and ingress", "bandwidthManager.enabled=false"},
		{"two shapers of one", "PW403", cilium, managed("1.20.2", egress), doctor.Warn, "podweir shapes ingress", "shaper=podweir"},
		{"an old manager", "PW403", cilium, managed("1.17.9", ""), doctor.Warn, "egress alone (version 1.17.9, host routing BPF), and podweir shapes egress", "shaper=podweir"},
		{"left to Cilium", "PW403", cilium, idle(managed("1.20.2", both)), doctor.OK, "egress and ingress limits are left to it", ""},
		{"left to an old Cilium", "PW403", cilium, idle(managed("1.17.9", egress)), doctor.OK, "egress limits are left to it", ""},
		{"left, version unknown", "PW403", cilium, idle(managed("", egress)), doctor.Warn, "version unknown", "podweir shapes ingress"},
		{"left too late", "PW403", cilium, managed("1.20.2", both), doctor.Warn, "podweir still shapes default/web egress", "podweir detach"},
		{"left, but for the node's own rate", "PW403", cilium, managed("1.20.2", both+`,"egressRate":"1G","ingressRate":"1G"`), doctor.OK, "are left to it", ""},
		{"manager off", "PW403", cilium, func(*node) {}, doctor.OK, "is off", ""},
		{"manager unknown", "PW403", cilium, func(n *node) {
			n.live = agent{}
			n.settings("enable-bandwidth-manager", "true")
		}, doctor.Unknown, "podweir shapes", ""},

		{"left to nobody", "PW409", cilium, func(n *node) {
			n.files[net+"cilium/50-podweir.conf"] = strings.TrimSuffix(conflist.DefaultEntry, "}") + both + "}"
		}, doctor.Fail, "50-podweir.conf leaves egress and ingress limits to Cilium's bandwidth manager, which does not enforce them", "take away"},
		{"left to an agent that is too old", "PW409", cilium, managed("1.17.9", both), doctor.Fail, "leaves ingress limits", "take away"},
		{"left to who knows", "PW409", cilium, managed("", both), doctor.Unknown, "leaves ingress limits to Cilium's bandwidth manager: whether", ""},
		{"left where there is no Cilium", "PW409", aws, func(n *node) {
			n.files[own] = strings.Replace(n.files[own], `"type":"podweir-cni"`, `"type":"podweir-cni","egressShaper":"cilium"`, 1)
		}, doctor.Fail, "leaves egress limits", "take away"},
		{"left to Cilium, and it does", "PW409", cilium, managed("1.20.2", both), doctor.OK, "egress and ingress", ""},
		{"nothing is left", "PW409", cilium, func(*node) {}, doctor.Skip, "leaves no limit", ""},

		{"Felix, and its limit ahead", "PW403", calico, felix("", 20_000_000), doctor.Warn, "Calico enforces kubernetes.io/*-bandwidth, too, and its limit is before podweir's on default/web", "1P"},
		{"Felix, and its limit taken away", "PW403", calico, felix("", 1_000_000_000_000_000), doctor.OK, "no limit of Calico's is before its own", ""},
		{"Felix, on a pod of its own", "PW403", calico, idle(felix("", 20_000_000)), doctor.OK, "podweir shapes egress and ingress", ""},
		{"left to Felix", "PW403", calico, idle(felix(`,"shaper":"calico"`, 20_000_000)), doctor.OK, "egress and ingress limits are left to it", ""},
		{"left to Felix too late", "PW403", calico, felix(`,"shaper":"calico"`, 20_000_000), doctor.Warn, "podweir still shapes default/web", "podweir detach"},
		{"Felix of unknown release", "PW403", calico, func(*node) {}, doctor.Unknown, "which release of Calico runs is not known", ""},
		{"Felix, not seen", "PW403", calico, func(n *node) { felix("", 1)(n); n.kernel.err = errors.New("EPERM") }, doctor.Unknown, "was not seen", ""},
		{"left to Felix, which does", "PW409", calico, felix(`,"ingressShaper":"calico"`, 0), doctor.OK, "ingress limits to Calico", ""},
		{"left to both", "PW409", calico, felix(`,"ingressShaper":"calico","egressShaper":"cilium"`, 0), doctor.Fail, "leaves egress limits to Cilium's bandwidth manager", "shaper=cilium"},
		{"left to Felix, who knows", "PW409", calico, func(n *node) {
			n.files[net+"00-podweir-10-calico.conflist"] = strings.Replace(n.files[net+"00-podweir-10-calico.conflist"], `"type":"podweir-cni"`, `"type":"podweir-cni","shaper":"calico"`, 1)
		}, doctor.Unknown, "leaves egress and ingress limits to Calico", ""},
		{"OVN-Kubernetes", "PW403", ovn, limitedTwice, doctor.Warn, "OVN-Kubernetes enforces kubernetes.io/*-bandwidth, too, and podweir shapes egress and ingress of default/early", "default shaper=ovn"},
		{"OVN-Kubernetes, and nothing is known of pods", "PW403", ovn, func(*node) {}, doctor.Warn, "too, and podweir shapes egress and ingress", "podweir.io/ingress-rate"},
		{"OVN-Kubernetes, and limits that it does not read", "PW403", ovn, func(n *node) { n.files[results+"cilium-c1-eth0"] = cached("c1", "{}") }, doctor.OK, "no pod that podweir shapes has them", ""},
		{"left to OVN-Kubernetes", "PW403", ovn, leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn"), doctor.OK, "egress and ingress limits are left to it", ""},
		{"left to OVN-Kubernetes, which does", "PW409", ovn, leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn"), doctor.OK, "egress and ingress limits to OVN-Kubernetes", ""},
		{"left to Terway, which is not here", "PW409", ovn, leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "terway"), doctor.Fail, "leaves egress and ingress limits to Terway, which does not", "shaper=terway"},
		{"OpenShift", "PW403", openShift, limitedTwice, doctor.Warn, "OVN-Kubernetes enforces kubernetes.io/*-bandwidth, too, and podweir shapes egress and ingress of default/early", "default shaper=ovn"},
		{"Multus in front of another CNI", "PW403", openShift, func(n *node) { n.files["proc/9/comm"] = "flanneld\n" }, doctor.Skip, "nobody else", ""},
		{"Terway that takes limits", "PW403", terway(`,"capabilities":{"bandwidth":true}`), limitedTwice, doctor.Warn, "Terway (Alibaba Cloud) enforces", "default shaper=terway"},
		{"Terway that takes none", "PW403", terway(""), limitedTwice, doctor.OK, "does not take the capability bandwidth, and terway-qos does not run", ""},
		{"terway-qos", "PW403", terway(""), func(n *node) { limitedTwice(n); n.files["proc/8/comm"] = "qos\n" }, doctor.Warn, "terway-qos enforces", "default shaper=terway"},
		{"Terway behind Multus", "PW403", openShift, func(n *node) { n.files["proc/9/comm"] = "terwayd\n" }, doctor.Unknown, "whether Terway (Alibaba Cloud) takes the capability bandwidth is not known", ""},
		{"Open vSwitch's queue", "PW505", ovn, ovsQueue, doctor.Warn, "eni0123456789a has htb", "default shaper=ovn"},
		{"Open vSwitch's queue, left to it", "PW505", ovn, func(n *node) {
			ovsQueue(n)
			leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn")(n)
		}, doctor.OK, "1 of OVN-Kubernetes's", ""},
		{"Felix's endless queue", "PW505", calico, felix("", 1_000_000_000_000_000), doctor.OK, "1 of Calico's, which hold back nothing", ""},
		{"Felix's queue, ahead", "PW505", calico, felix("", 20_000_000), doctor.Warn, "has tbf", "qos.projectcalico.org/ingressBandwidth=1P"},
		{"Felix's queue on a pod of its own", "PW505", calico, idle(felix("", 20_000_000)), doctor.Warn, "has tbf", "qos.projectcalico.org/ingressBandwidth=1P"},
		{"Felix's queue, left to it", "PW505", calico, felix(`,"shaper":"calico"`, 20_000_000), doctor.OK, "1 of Calico's", ""},

		{"pod that is left to Cilium", "PW605", cilium, seen(both), doctor.OK, "0 of 1", ""},
		{"pod that is podweir's in one direction", "PW605", cilium, seen(egress), doctor.Warn, "default/early", "recreate these pods"},
	}
}
