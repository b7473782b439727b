// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
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

		{name: "left to an absent shaper", code: "PW409", node: cilium, change: set(net+"cilium/50-podweir.conf", strings.TrimSuffix(conflist.DefaultEntry, "}")+both+"}"), want: doctor.Fail, seen: "50-podweir.conf leaves egress and ingress limits to Cilium's bandwidth manager, which does not enforce them", fix: "take away"},
		{name: "left to an agent that is too old", code: "PW409", node: cilium, change: managed("1.17.9", both), want: doctor.Fail, seen: "leaves ingress limits", fix: "take away"},
		{name: "left to who knows", code: "PW409", node: cilium, change: managed("", both), want: doctor.Unknown, seen: "leaves ingress limits to Cilium's bandwidth manager: whether"},
		{name: "left where there is no Cilium", code: "PW409", node: aws, change: edit(own, `"type":"podweir-cni"`, `"type":"podweir-cni","egressShaper":"cilium"`), want: doctor.Fail, seen: "leaves egress limits", fix: "take away"},
		{name: "left to Cilium, and it does", code: "PW409", node: cilium, change: managed("1.20.2", both), want: doctor.OK, seen: "egress and ingress"},
		{name: "nothing is left", code: "PW409", node: cilium, change: func(*node) {}, want: doctor.Skip, seen: "leaves no limit"},

		{name: "Felix, and its limit ahead", code: "PW403", node: calico, change: felix("", 20_000_000), want: doctor.Fail, seen: "Calico enforces kubernetes.io/*-bandwidth, too, and its limit is before podweir's on default/web", fix: "1P"},
		{name: "Felix, and its limit in podweir's queue", code: "PW403", node: calico, change: func(n *node) {
			felix("", 1_000_000_000_000_000)(n)
			for i := range n.kernel.devices {
				n.kernel.devices[i].Qdiscs = []doctor.Qdisc{{Kind: "tbf", Root: true, Ours: true, BitsPerSec: 20_000_000}}
			}
			for i := range n.kernel.attached {
				n.kernel.attached[i].Place = terms.PlaceHost
			}
		}, want: doctor.Fail, seen: "its limit is before podweir's on default/web", fix: "podweir install"},
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
		{name: "left to Felix, who knows", code: "PW409", node: calico, change: edit(net+"00-podweir-10-calico.conflist", `"type":"podweir-cni"`, `"type":"podweir-cni","shaper":"calico"`), want: doctor.Unknown, seen: "leaves egress and ingress limits to Calico"},
		{name: "OVN-Kubernetes", code: "PW403", node: ovn, change: limitedTwice, want: doctor.Warn, seen: "OVN-Kubernetes enforces kubernetes.io/*-bandwidth, too, and podweir shapes egress and ingress of default/early", fix: "default shaper=ovn"},
		{name: "OVN-Kubernetes, and nothing is known of pods", code: "PW403", node: ovn, change: func(*node) {}, want: doctor.Warn, seen: "too, and podweir shapes egress and ingress", fix: "podweir.io/ingress-rate"},
		{name: "OVN-Kubernetes, and limits that it does not read", code: "PW403", node: ovn, change: set(results+"cilium-c1-eth0", cached("c1", "{}")), want: doctor.OK, seen: "no pod that podweir shapes has them"},
		{name: "left to OVN-Kubernetes", code: "PW403", node: ovn, change: leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn"), want: doctor.OK, seen: "egress and ingress limits are left to it"},
		{name: "left to OVN-Kubernetes, which does", code: "PW409", node: ovn, change: leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn"), want: doctor.OK, seen: "egress and ingress limits to OVN-Kubernetes"},
		{name: "OpenShift", code: "PW403", node: openShift, change: limitedTwice, want: doctor.Warn, seen: "OVN-Kubernetes enforces kubernetes.io/*-bandwidth, too, and podweir shapes egress and ingress of default/early", fix: "default shaper=ovn"},
		{name: "Multus in front of another CNI", code: "PW403", node: openShift, change: set("proc/9/comm", "flanneld\n"), want: doctor.Skip, seen: "no other component"},
		{name: "Open vSwitch's queue", code: "PW505", node: ovn, change: ovsQueue, want: doctor.Warn, seen: "eni0123456789a has htb", fix: "default shaper=ovn"},
		{name: "Open vSwitch's queue, left to it", code: "PW505", node: ovn, change: with(ovsQueue, leftTo(net+"00-podweir-10-ovn-kubernetes.conflist", "ovn")), want: doctor.OK, seen: "1 of OVN-Kubernetes's"},
		{name: "Felix's endless queue", code: "PW505", node: calico, change: felix("", 1_000_000_000_000_000), want: doctor.OK, seen: "1 of Calico's, which hold back nothing"},
		{name: "Felix's queue, ahead", code: "PW505", node: calico, change: felix("", 20_000_000), want: doctor.Warn, seen: "has tbf", fix: "qos.projectcalico.org/ingressBandwidth=1P"},
		{name: "Felix's queue on its own pod", code: "PW505", node: calico, change: idle(felix("", 20_000_000)), want: doctor.Warn, seen: "has tbf", fix: "qos.projectcalico.org/ingressBandwidth=1P"},
		{name: "Felix's queue, left to it", code: "PW505", node: calico, change: felix(`,"shaper":"calico"`, 20_000_000), want: doctor.OK, seen: "1 of Calico's"},

		{name: "pod that is left to Cilium", code: "PW605", node: cilium, change: seen(both), want: doctor.OK, seen: "0 of 1"},
		{name: "pod that is podweir's in one direction", code: "PW605", node: cilium, change: seen(egress), want: doctor.Warn, seen: "default/early", fix: "recreate these pods"},
	}
}

// felixFilter is what Felix puts on the device of a pod with a limit of egress.
var felixFilter = judge.Program{Kind: terms.HookKindClsact, Hook: terms.HookIngress, FilterKind: "u32", Pref: 1, FilterHandle: 0x80000800}

// hooked puts programs on the hooks of the first pod's device.
func hooked(in, out []judge.Program) func(*node) {
	return func(n *node) {
		n.kernel.devices[0].In.Programs, n.kernel.devices[0].Out.Programs = in, out
	}
}

// besideFindings are about what real neighbours were seen to do.
func besideFindings() []finding {
	withBandwidth := func(n *node) {
		n.files[net+"10-aws.conflist"] = strings.Replace(awsList, "]}", bottled, 1)
		n.spliceIn("10-aws.conflist")
	}
	// result has libcni keep what the plugins answered.
	result := func(text string) func(*node) {
		return func(n *node) {
			n.files[results+"aws-cni-c2-eth0"] = strings.Replace(cached("c2", limited), `"result":{}`, text, 1)
			n.files["run/netns/cni-1"] = ""
		}
	}
	const interfaces = `"result":{"cniVersion":"0.4.0","interfaces":[{"name":"eni1"},{"name":"eth0","sandbox":"/var/run/netns/%s"},{"name":"dummy1","mac":"0","sandbox":"0"}]}`
	// paced is a node whose Cilium has its manager on, with these qdiscs on its devices.
	paced := func(devices, keys string, queues map[string][]string) func(*node) {
		return func(n *node) {
			managed("1.20.2", keys)(n)
			n.live = agent{health: strings.Replace(n.live.(agent).health, `"enabled":true`, `"enabled":true,"devices":`+devices, 1)}
			n.settings("enable-bandwidth-manager", "true")
			n.kernel.queues = queues
			n.kernel.attached = nil
		}
	}
	renamed := func(n *node) {
		delete(n.files, net+"cilium/50-podweir.conf")
		n.files[net+"00-podweir-05-.conflist.cilium_bak"] = "{}"
	}
	misspelt := []terms.Misspelt{{Direction: terms.Ingress, Name: "x-rate", Near: "y-rate"}}
	limitedIn := func(d terms.Direction) func(*node) {
		return func(n *node) {
			asking(doctor.Sandbox{Asks: tenM, Misspelt: misspelt})(n)
			n.kernel.attached = []doctor.Attachment{{Pod: "default/asks", ContainerID: "c9", Limit: limitOf(d, 0, terms.QueueTBF)}}
		}
	}
	pfifo := map[string][]string{"eth0": {"mq", "pfifo_fast"}, "eth1": {"mq", "fq"}}
	return append(besideFelixFindings(), []finding{
		{name: "a cure in the agent's pod", code: "PW602", node: aws, change: func(n *node) {
			troubled(terms.FaultDiffers, "podweir repair", "no root qdisc")(n)
			n.run = "kubectl -n kube-system exec podweir-x -- podweir"
		}, want: doctor.Fail, seen: "no root qdisc", fix: "kubectl -n kube-system exec podweir-x -- podweir repair"},
		{name: "a cure for the cluster", code: "PW608", node: aws, change: with(troubled(terms.FaultLeft, "podweir gc", "the pod is gone"), func(n *node) { n.run = terms.ByKubectl }), want: doctor.Warn, seen: "default/web", fix: "kubectl podweir exec NODE -- podweir gc"},
		{name: "renamed, and drop-ins are read", code: "PW214", node: cilium, change: renamed, want: doctor.Fail, seen: "cilium_bak", fix: "podweir install, which takes the delivery drop-in"},
		{name: "renamed, and drop-ins are not read", code: "PW214", node: cilium, change: func(n *node) { renamed(n); n.opts.Runtime = "containerd://1.7.2" }, want: doctor.Fail, seen: "cilium_bak", fix: "cni.configMap"},
		{name: "manager without fq", code: "PW404", node: cilium, change: paced(`["eth0","eth1"]`, "", pfifo), want: doctor.Warn, seen: "Cilium's bandwidth manager is on, and eth0 (mq, pfifo_fast) has no fq", fix: "bandwidthManager.enabled=false"},
		{name: "manager with fq", code: "PW404", node: cilium, change: paced(`["eth1"]`, "", pfifo), want: doctor.OK, seen: "agree, and its devices have fq"},
		{name: "manager on a kernel without fq", code: "PW404", node: cilium, change: func(n *node) {
			paced(`null`, "", nil)(n)
			n.kernel.features["fq"] = false
		}, want: doctor.Warn, seen: "the kernel has no fq", fix: "bandwidthManager.enabled=false"},
		{name: "manager, and nothing known of its devices", code: "PW404", node: cilium, change: paced(`null`, "", nil), want: doctor.OK, seen: "agree"},
		{name: "left to a manager without fq", code: "PW409", node: cilium, change: paced(`["eth0"]`, `,"shaper":"cilium"`, pfifo), want: doctor.Fail, seen: "leaves egress limits to Cilium's bandwidth manager, and eth0 (mq, pfifo_fast) has no fq", fix: "shaper=podweir"},
		{name: "left to a manager with fq", code: "PW409", node: cilium, change: paced(`["eth1"]`, `,"shaper":"cilium"`, pfifo), want: doctor.OK, seen: "egress and ingress limits to Cilium's"},
		{name: "ingress alone is left to it", code: "PW409", node: cilium, change: paced(`["eth0"]`, `,"ingressShaper":"cilium"`, pfifo), want: doctor.OK, seen: "ingress limits to Cilium's"},
		{name: "a pod whose DEL failed", code: "PW605", node: aws, change: result(fmt.Sprintf(interfaces, "cni-2")), want: doctor.OK, seen: "0 of 0"},
		{name: "a pod whose DEL failed, newer libcni", code: "PW605", node: aws, change: result(`"netns":"/run/netns/cni-2"`), want: doctor.OK, seen: "0 of 0"},
		{name: "a pod of before the boot", code: "PW605", node: aws, change: with(result(fmt.Sprintf(interfaces, "cni-2")), without("run/netns/cni-1"), set("run/x", "")), want: doctor.OK, seen: "0 of 0"},
		{name: "a pod that asks by podweir's annotation", code: "PW605", node: aws, change: asking(doctor.Sandbox{Asks: tenM}), want: doctor.Warn, seen: "podweir has no record of default/asks", fix: "recreate these pods"},
		{name: "a pod that misspelt it, an agent", code: "PW605", node: aws, change: func(n *node) {
			asking(doctor.Sandbox{Misspelt: misspelt})(n)
			n.kernel.agent = &doctor.Agent{}
		}, want: doctor.Warn, seen: "default/asks, whose annotation is misspelt: x-rate, did you mean"},
		{name: "a pod that misspelt it for one direction", code: "PW605", node: aws, change: limitedIn(terms.Egress), want: doctor.Warn, seen: "default/asks, whose annotation is misspelt: x-rate, did you mean y-rate?", fix: "correct the annotations"},
		{name: "a pod that misspelt what it has by a default", code: "PW605", node: aws, change: limitedIn(terms.Ingress), want: doctor.OK, seen: "1 of 1"},
		{name: "a pod that is limited by hand", code: "PW605", node: aws, change: func(n *node) {
			asking(doctor.Sandbox{Asks: tenM, NetNS: "/run/netns/x"})(n)
			n.kernel.attached = []doctor.Attachment{{Pod: "podweir-manual/netns-1", ContainerID: "netns-1", ByHandIn: "/run/netns/x", Limit: limitOf(terms.Egress, 0, terms.QueueTBF)}}
		}, want: doctor.OK, seen: "1 of 1"},
		{name: "a pod whose limits are left to others", code: "PW605", node: aws, change: asking(doctor.Sandbox{Asks: tenM, LeftTo: "Calico"}), want: doctor.OK, seen: "0 of 1"},
		{name: "a pod that asks for nothing", code: "PW605", node: aws, change: with(asking(doctor.Sandbox{}), set(results+"aws-cni-c1-eth0", cached("c1", limited))), want: doctor.OK, seen: "1 of 1"},
		{name: "a pod whose annotation was removed, an agent", code: "PW605", node: aws, change: func(n *node) {
			asking(doctor.Sandbox{Asks: tenM})(n)
			n.files[results+"aws-cni-c2-eth0"] = cached("c2", limited)
			n.kernel.agent = &doctor.Agent{NotReady: []doctor.Part{{Name: "delivery", Reason: "no chain"}}}
		}, want: doctor.OK, seen: "0 of 2"},
		{name: "a pod that asks, an agent that does not know the pods", code: "PW605", node: aws, change: func(n *node) {
			asking(doctor.Sandbox{Asks: tenM})(n)
			n.kernel.agent = &doctor.Agent{NotReady: []doctor.Part{{Name: "api", Reason: "403"}}}
		}, want: doctor.Warn, seen: "default/asks"},
		{name: "a pod that is there", code: "PW605", node: aws, change: result(fmt.Sprintf(interfaces, "cni-1")), want: doctor.Warn, seen: "default/early", fix: "recreate these pods"},
		{name: "a pod whose namespace nobody can see", code: "PW605", node: aws, change: result(`"netns":"/elsewhere/cni-2"`), want: doctor.Warn, seen: "default/early", fix: "recreate these pods"},
		{name: "bandwidth, replaced", code: "PW301", node: aws, change: withBandwidth, want: doctor.Warn, seen: "bandwidth is in 10-aws.conflist, and podweir's file replaces it: once podweir is uninstalled, pods with an egress limit do not start", fix: "ENABLE_BANDWIDTH_PLUGIN=false"},
		{name: "bandwidth, replaced, without policy", code: "PW301", node: aws, change: with(withBandwidth, set("proc/4/cmdline", "/controller\x00--enable-network-policy=false\x00")), want: doctor.Skip, seen: "does not enforce"},
	}...)
}

// besideFelixFindings are about Calico's agent, and about programs that are not podweir's.
func besideFelixFindings() []finding {
	type list = []judge.Program
	ciliumOut := judge.Program{Kind: terms.HookKindTCX, Hook: terms.HookEgress, ProgramID: 11, Name: "cil_to_containe"}
	u32Out := felixFilter
	u32Out.Hook = terms.HookEgress
	standard := func(is bool, f func(*node)) func(*node) {
		return func(n *node) { f(n); n.kernel.attached[0].Standard = is }
	}
	return []finding{
		{name: "left to Felix, and podweir's own rate", code: "PW403", node: calico, change: standard(false, felix(`,"shaper":"calico"`, 20_000_000)), want: doctor.OK, seen: "are left to it"},
		{name: "left to Felix, and still shaped", code: "PW403", node: calico, change: standard(true, felix(`,"shaper":"calico"`, 20_000_000)), want: doctor.Warn, seen: "podweir still shapes default/web", fix: "podweir detach"},
		{name: "Felix's limit is before podweir's", code: "PW403", node: calico, change: felix("", 20_000_000), want: doctor.Fail, seen: "its limit is before podweir's on default/web", fix: "1P"},
		{name: "Felix's filter", code: "PW502", node: calico, change: hooked(list{felixFilter}, nil), want: doctor.OK, seen: "none on 1"},
		{name: "Felix's kind of filter on the other hook", code: "PW502", node: calico, change: hooked(nil, list{u32Out}), want: doctor.Warn, seen: "egress: u32 filter at preference 1", fix: "tc filter show dev eni0123456789a egress"},
		{name: "a u32 filter without Calico", code: "PW502", node: ptp, change: hooked(list{felixFilter}, nil), want: doctor.Warn, seen: "u32 filter", fix: "tc filter show dev eni0123456789a ingress"},
		{name: "a program and its id", code: "PW502", node: ptp, change: hooked(list{{Kind: terms.HookKindTCX, ProgramID: 9, Name: "tracer"}}, nil), want: doctor.Warn, seen: "tracer (program 9)", fix: "bpftool prog show id 9"},
		{name: "Cilium with endpoint routes and BPF host routing", code: "PW502", node: cilium, change: func(n *node) {
			n.live = agent{health: n.live.(agent).health, config: `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":true}}}`}
			n.kernel.devices[0].Out.Programs = list{ciliumOut}
		}, want: doctor.OK, seen: "none on 1"},
		{name: "Cilium 1.15 with endpoint routes and BPF host routing", code: "PW502", node: cilium, change: func(n *node) {
			n.live = agent{health: `{"cilium":{"msg":"1.15.19 (v1.15.19-0000000)"},"host-routing":{"mode":"BPF"}}`, config: `{"status":{"daemonConfigurationMap":{"EnableEndpointRoutes":true},"datapathMode":"veth"}}`}
			n.kernel.devices[0].Out.Programs = list{ciliumOut}
		}, want: doctor.OK, seen: "none on 1"},
	}
}

// tenM is what a pod asks for by podweir's own annotation, of which libcni knows nothing.
var tenM = []terms.Ask{{Direction: terms.Egress, Name: "podweir.io/egress-rate", Value: "10M"}}

// asking has the container runtime know a pod.
func asking(s doctor.Sandbox) func(*node) {
	s.ContainerID, s.Pod = "c9", "default/asks"
	return func(n *node) { n.kernel.asking = []doctor.Sandbox{s} }
}

// A list that changes from look to look hides that nothing else did.
func TestShortenedListsKeepTheirOrder(t *testing.T) {
	const want = "a; b; c; d; e; and 1 more"
	for _, seen := range [][]string{{"c", "f", "a", "b", "e", "d"}, {"f", "e", "d", "c", "b", "a"}} {
		must.Be(t, fmt.Sprintf("Shorten(%v)", seen), want, doctor.Shorten(seen))
	}
}
