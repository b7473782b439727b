// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// managed is a node whose Cilium enforces the annotations, as far as its version
// goes, with keys in podweir's entry.
func managed(version, keys string) func(*node) {
	return func(n *node) {
		n.live = agent{health: `{"cilium":{"msg":"` + version + ` (v` + version + `-abc)"},"routing":{"intra-host-routing-mode":"BPF"},` +
			`"bandwidth-manager":{"enabled":true}}`}
		n.files[net+"cilium/50-podweir.conf"] = strings.TrimSuffix(conflist.DefaultEntry, "}") + keys + "}"
		for i := range n.kernel.attached {
			n.kernel.attached[i].Standard = true
		}
	}
}

// felix is a node whose Felix enforces the annotations, with keys in podweir's entry
// and a queue on the pod's device.
func felix(keys string, bitsPerSec uint64) func(*node) {
	return func(n *node) {
		const own = net + "00-podweir-10-calico.conflist"
		n.files[own] = strings.Replace(n.files[own], `"type":"podweir-cni"`, `"type":"podweir-cni"`+keys, 1)
		n.files["sys/class/net/bwcali0123456789/dummy"] = ""
		n.kernel.attached[0].Direction, n.kernel.attached[0].Place = terms.Name(terms.Ingress), terms.PlaceIFB
		n.kernel.devices[0].Qdiscs = []doctor.Qdisc{{Kind: "tbf", Root: true, BitsPerSec: bitsPerSec}}
		n.kernel.devices[0].Egress = slices.Clone(n.kernel.devices[0].Qdiscs)
		n.kernel.attached[0].Device, n.kernel.attached[0].Standard = n.kernel.devices[0].Name, true
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

// limitedTwice has the runtime pass limits for the pod that podweir shapes.
func limitedTwice(n *node) {
	const both = `{"bandwidth":{"ingressRate":1000000,"egressRate":1000000}}`
	n.files[results+"cilium-c1-eth0"] = cached("c1", both)
	n.kernel.attached = []doctor.Attachment{
		{Pod: "default/early", Limit: limitOf(terms.Egress, 0, terms.QueueTBF), ContainerID: "c1"},
		{Pod: "default/early", Limit: limitOf(terms.Ingress, 0, terms.QueueTBF), ContainerID: "c1", Place: terms.PlaceIFB},
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

// withStandardLimit adds a pod with standard annotations behind the first device.
func withStandardLimit(change func(*node)) func(*node) {
	return func(n *node) {
		change(n)
		n.files[results+"k8s-pod-network-c2-eth0"] = strings.Replace(cached("c2", `{"bandwidth":{"ingressRate":1000000,"egressRate":1000000}}`), `"result":{}`,
			`"result":{"interfaces":[{"name":"`+n.kernel.devices[0].Name+`"}]}`, 1)
	}
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
		{name: "two shapers", code: "PW403", node: cilium, change: managed("1.20.2", ""), want: doctor.Warn, seen: "podweir shapes egress and ingress", fix: "bandwidthManager.enabled=false"},
		{name: "two shapers of one", code: "PW403", node: cilium, change: managed("1.20.2", egress), want: doctor.Warn, seen: "podweir shapes ingress", fix: "shaper=podweir"},
		{name: "an old manager", code: "PW403", node: cilium, change: managed("1.17.9", ""), want: doctor.Warn, seen: "egress alone (version 1.17.9, host routing BPF), and podweir shapes egress", fix: "shaper=podweir"},
		{name: "left to Cilium", code: "PW403", node: cilium, change: idle(managed("1.20.2", both)), want: doctor.OK, seen: "egress and ingress limits are left to it"},
		{name: "left to an old Cilium", code: "PW403", node: cilium, change: idle(managed("1.17.9", egress)), want: doctor.OK, seen: "egress limits are left to it"},
		{name: "left, version unknown", code: "PW403", node: cilium, change: idle(managed("", egress)), want: doctor.Warn, seen: "version unknown", fix: "podweir shapes ingress"},
		{name: "left too late", code: "PW403", node: cilium, change: managed("1.20.2", both), want: doctor.Warn, seen: "podweir still shapes default/web egress", fix: "podweir detach"},
		{name: "left, but for the node's own rate", code: "PW403", node: cilium, change: func(n *node) {
			managed("1.20.2", both+`,"egressRate":"1G","ingressRate":"1G"`)(n)
			n.kernel.attached[0].Standard, n.kernel.attached[1].Standard = false, false
		}, want: doctor.OK, seen: "are left to it"},
		{name: "manager off", code: "PW403", node: cilium, change: func(*node) {}, want: doctor.OK, seen: "is off"},
		{name: "manager unknown", code: "PW403", node: cilium, change: func(n *node) {
			n.live = agent{}
			n.settings("enable-bandwidth-manager", "true")
		}, want: doctor.Unknown, seen: "podweir shapes"},

		{name: "left to an absent shaper", code: "PW409", node: cilium, change: func(n *node) {
			n.files[net+"cilium/50-podweir.conf"] = strings.TrimSuffix(conflist.DefaultEntry, "}") + both + "}"
		}, want: doctor.Fail, seen: "50-podweir.conf leaves egress and ingress limits to Cilium's bandwidth manager, which does not enforce them", fix: "take away"},
		{name: "left to an agent that is too old", code: "PW409", node: cilium, change: managed("1.17.9", both), want: doctor.Fail, seen: "leaves ingress limits", fix: "take away"},
		{name: "left to who knows", code: "PW409", node: cilium, change: managed("", both), want: doctor.Unknown, seen: "leaves ingress limits to Cilium's bandwidth manager: whether"},
		{name: "left where there is no Cilium", code: "PW409", node: aws, change: func(n *node) {
			n.files[own] = strings.Replace(n.files[own], `"type":"podweir-cni"`, `"type":"podweir-cni","egressShaper":"cilium"`, 1)
		}, want: doctor.Fail, seen: "leaves egress limits", fix: "take away"},
		{name: "left to Cilium, and it does", code: "PW409", node: cilium, change: managed("1.20.2", both), want: doctor.OK, seen: "egress and ingress"},
		{name: "nothing is left", code: "PW409", node: cilium, change: func(*node) {}, want: doctor.Skip, seen: "leaves no limit"},

		{name: "Felix, and its limit ahead", code: "PW403", node: calico, change: felix("", 20_000_000), want: doctor.Fail, seen: "Calico enforces kubernetes.io/*-bandwidth, too, and its limit is before podweir's on default/web", fix: "1P"},
		{name: "Felix, and its limit taken away", code: "PW403", node: calico, change: felix("", 1_000_000_000_000_000), want: doctor.OK, seen: "no limit of Calico's is before its own"},
		{name: "Felix, on its own pod", code: "PW403", node: calico, change: idle(felix("", 20_000_000)), want: doctor.OK, seen: "podweir shapes egress and ingress"},
		{name: "left to Felix", code: "PW403", node: calico, change: idle(felix(`,"shaper":"calico"`, 20_000_000)), want: doctor.OK, seen: "egress and ingress limits are left to it"},
		{name: "left to Felix too late", code: "PW403", node: calico, change: felix(`,"shaper":"calico"`, 20_000_000), want: doctor.Warn, seen: "podweir still shapes default/web", fix: "podweir detach"},
		{name: "Felix of unknown release", code: "PW403", node: calico, change: func(*node) {}, want: doctor.Unknown, seen: "which release of Calico runs is not known"},
		{name: "Felix, not seen", code: "PW403", node: calico, change: func(n *node) { felix("", 1)(n); n.kernel.err = errors.New("EPERM") }, want: doctor.Unknown, seen: "was not seen"},
		{name: "left to Felix, which does", code: "PW409", node: calico, change: felix(`,"ingressShaper":"calico"`, 0), want: doctor.OK, seen: "ingress limits to Calico"},
		{name: "left to Felix, whose number is overridden", code: "PW409", node: calico, change: withStandardLimit(idle(felix(`,"shaper":"calico"`, 1_000_000_000_000_000))), want: doctor.Fail, seen: "leaves limits to Calico, which has none for default/early egress; default/early ingress", fix: "qos.projectcalico.org/ingressBandwidth"},
		{name: "left to Felix, whose number of egress is overridden", code: "PW409", node: calico, change: withStandardLimit(func(n *node) {
			idle(felix(`,"shaper":"calico"`, 20_000_000))(n)
			n.kernel.devices[0].Egress = []doctor.Qdisc{{Kind: "tbf", Root: true, BitsPerSec: 1_000_000_000_000_000}}
		}), want: doctor.Fail, seen: "leaves limits to Calico, which has none for default/early egress", fix: "qos.projectcalico.org/ingressBandwidth"},
		{name: "left to Felix, egress alone, and no limit of it", code: "PW409", node: calico, change: withStandardLimit(func(n *node) {
			idle(felix(`,"egressShaper":"calico"`, 20_000_000))(n)
			n.kernel.devices[0].Egress = nil
		}), want: doctor.Fail, seen: "leaves limits to Calico, which has none for default/early egress", fix: "egressBandwidth"},
		{name: "left to Felix, whose limits were not seen", code: "PW409", node: calico, change: func(n *node) { felix(`,"shaper":"calico"`, 1)(n); n.kernel.err = errors.New("EPERM") }, want: doctor.Unknown, seen: "was not seen"},
		{name: "left to Felix, and limited", code: "PW409", node: calico, change: withStandardLimit(idle(felix(`,"shaper":"calico"`, 20_000_000))), want: doctor.OK, seen: "egress and ingress limits to Calico"},
		{name: "left to Felix, and limited by podweir's annotation", code: "PW409", node: calico, change: func(n *node) {
			withStandardLimit(felix(`,"shaper":"calico"`, 1_000_000_000_000_000))(n)
			n.kernel.attached[0].ContainerID = "c2"
			n.kernel.devices[0].Egress[0].BitsPerSec = 20_000_000
		}, want: doctor.OK, seen: "egress and ingress limits to Calico"},
		{name: "left to both", code: "PW409", node: calico, change: felix(`,"ingressShaper":"calico","egressShaper":"cilium"`, 0), want: doctor.Fail, seen: "leaves egress limits to Cilium's bandwidth manager", fix: "shaper=cilium"},
		{name: "left to Felix, who knows", code: "PW409", node: calico, change: func(n *node) {
			n.files[net+"00-podweir-10-calico.conflist"] = strings.Replace(n.files[net+"00-podweir-10-calico.conflist"], `"type":"podweir-cni"`, `"type":"podweir-cni","shaper":"calico"`, 1)
		}, want: doctor.Unknown, seen: "leaves egress and ingress limits to Calico"},
		{name: "OVN-Kubernetes", code: "PW403", node: ovn, change: limitedTwice, want: doctor.Warn, seen: "OVN-Kubernetes enforces kubernetes.io/*-bandwidth, too, and podweir shapes egress and ingress of default/early", fix: "default shaper=ovn"},
		{name: "OVN-Kubernetes, and nothing is known of pods", code: "PW403", node: ovn, change: func(*node) {}, want: doctor.Warn, seen: "too, and podweir shapes egress and ingress", fix: "podweir.io/ingress-rate"},
		{name: "OVN-Kubernetes, and limits that it does not read", code: "PW403", node: ovn, change: func(n *node) { n.files[results+"cilium-c1-eth0"] = cached("c1", "{}") }, want: doctor.OK, seen: "no pod that podweir shapes has them"},
		{name: "left to OVN-Kubernetes", code: "PW403", node: ovn, change: leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn"), want: doctor.OK, seen: "egress and ingress limits are left to it"},
		{name: "left to OVN-Kubernetes, which does", code: "PW409", node: ovn, change: leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn"), want: doctor.OK, seen: "egress and ingress limits to OVN-Kubernetes"},
		{name: "OpenShift", code: "PW403", node: openShift, change: limitedTwice, want: doctor.Warn, seen: "OVN-Kubernetes enforces kubernetes.io/*-bandwidth, too, and podweir shapes egress and ingress of default/early", fix: "default shaper=ovn"},
		{name: "Multus in front of another CNI", code: "PW403", node: openShift, change: func(n *node) { n.files["proc/9/comm"] = "flanneld\n" }, want: doctor.Skip, seen: "no other component"},
		{name: "Open vSwitch's queue", code: "PW505", node: ovn, change: ovsQueue, want: doctor.Warn, seen: "eni0123456789a has htb", fix: "default shaper=ovn"},
		{name: "Open vSwitch's queue, left to it", code: "PW505", node: ovn, change: func(n *node) {
			ovsQueue(n)
			leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn")(n)
		}, want: doctor.OK, seen: "1 of OVN-Kubernetes's"},
		{name: "Felix's endless queue", code: "PW505", node: calico, change: felix("", 1_000_000_000_000_000), want: doctor.OK, seen: "1 of Calico's, which hold back nothing"},
		{name: "Felix's queue, ahead", code: "PW505", node: calico, change: felix("", 20_000_000), want: doctor.Warn, seen: "has tbf", fix: "qos.projectcalico.org/ingressBandwidth=1P"},
		{name: "Felix's queue on its own pod", code: "PW505", node: calico, change: idle(felix("", 20_000_000)), want: doctor.Warn, seen: "has tbf", fix: "qos.projectcalico.org/ingressBandwidth=1P"},
		{name: "Felix's queue, left to it", code: "PW505", node: calico, change: felix(`,"shaper":"calico"`, 20_000_000), want: doctor.OK, seen: "1 of Calico's"},

		{name: "pod that is left to Cilium", code: "PW605", node: cilium, change: seen(both), want: doctor.OK, seen: "0 of 1"},
		{name: "pod that is podweir's in one direction", code: "PW605", node: cilium, change: seen(egress), want: doctor.Warn, seen: "default/early", fix: "recreate these pods"},
	}
}

func modeFindings() []finding {
	asks := func(mode string, more func(*node)) func(*node) {
		return func(n *node) {
			n.files[net+"cilium/50-podweir.conf"] = strings.TrimSuffix(conflist.DefaultEntry, "}") + mode + "}"
			if more != nil {
				more(n)
			}
		}
	}
	const egress, ingress = `,"egressMode":"tcx-hostside"`, `,"ingressMode":"clsact-hostside"`
	legacy := func(n *node) {
		n.settings("datapath-mode", "veth")
		n.live = agent{health: `{"attach-mode":"tcx","datapath-mode":"veth","routing":{"intra-host-routing-mode":"Legacy"}}`}
	}
	return []finding{
		{name: "no mode", code: "PW507", node: cilium, change: asks("", nil), want: doctor.Skip, seen: "no mode of the host side"},
		{name: "a mode of the pod's side", code: "PW507", node: cilium, change: asks(`,"mode":"clsact-podside"`, nil), want: doctor.Skip, seen: "no mode of the host side"},
		{name: "TCX", code: "PW507", node: cilium, change: asks(egress, nil), want: doctor.OK, seen: "on 1 devices"},
		{name: "TCX where there is none", code: "PW507", node: cilium, change: asks(egress, func(n *node) { n.kernel.features.TCX = profiles.No }), want: doctor.Fail, seen: "lxc0123 egress: mode tcx-hostside: the kernel has no TCX", fix: "take away"},
		{name: "TCX that packets go past", code: "PW507", node: cilium, change: asks(`,"mode":"tcx-hostside"`, nil), want: doctor.Fail, seen: "lxc0123 ingress: mode tcx-hostside is refused: the host-side egress hook sees only", fix: "50-podweir.conf"},
		{name: "clsact beside Cilium", code: "PW507", node: cilium, change: asks(ingress, legacy), want: doctor.Fail, seen: "lxc0123 ingress: mode clsact-hostside is refused: hostHook is tcx", fix: "take away"},
		{name: "clsact behind another", code: "PW507", node: cilium, change: func(n *node) {
			n.files[net+"05-cilium.conflist"] = `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"ptp"},{"type":"podweir-cni","mode":"clsact-hostside"}]}`
		}, want: doctor.Fail, seen: "lxc0123 egress: hook is held by another party: TCX program \"cil_from_contai\" runs before every filter on ingress of lxc0123", fix: "take away"},
		{name: "hook unread", code: "PW507", node: cilium, change: asks(egress, func(n *node) { n.kernel.devices[0].In.Unread = "EPERM" }), want: doctor.Unknown, seen: "EPERM"},
	}
}

// TestRefusedInOneSentence: beside every Cilium a filter on the host side is refused as
// ADD refuses it.
func TestRefusedInOneSentence(t *testing.T) {
	rules := judge.Rules{HostTCX: true}
	sentence := rules.Mode(terms.ModeClsactHostSide).Error()
	for _, p := range profiles.All() {
		if p.Family != "cilium" {
			continue
		}
		n := cilium()
		n.files[net+"cilium/50-podweir.conf"] = strings.TrimSuffix(conflist.DefaultEntry, "}") + `,"mode":"clsact-hostside"}`
		f := n.facts(t)
		f.Profile = p
		rep := doctor.Run(f)
		at := slices.IndexFunc(rep.Checks, func(o doctor.Outcome) bool { return o.Code == "PW507" })
		if o := rep.Checks[at]; o.Status != doctor.Fail || strings.Count(strings.Join(o.Evidence, "\n"), sentence) != 2 {
			t.Errorf("%s: PW507 is %v with %q, want %q for both directions", p.Name, o.Status, o.Evidence, sentence)
		}
	}
}
