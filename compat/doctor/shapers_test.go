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
		{"Felix's endless queue", "PW505", calico, felix("", 1_000_000_000_000_000), doctor.OK, "1 of Calico's, which hold back nothing", ""},
		{"Felix's queue, ahead", "PW505", calico, felix("", 20_000_000), doctor.Warn, "has tbf", "qos.projectcalico.org/ingressBandwidth=1P"},
		{"Felix's queue on a pod of its own", "PW505", calico, idle(felix("", 20_000_000)), doctor.Warn, "has tbf", "qos.projectcalico.org/ingressBandwidth=1P"},
		{"Felix's queue, left to it", "PW505", calico, felix(`,"shaper":"calico"`, 20_000_000), doctor.OK, "1 of Calico's", ""},

		{"pod that is left to Cilium", "PW605", cilium, seen(both), doctor.OK, "0 of 1", ""},
		{"pod that is podweir's in one direction", "PW605", cilium, seen(egress), doctor.Warn, "default/early", "recreate these pods"},
	}
}
