// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// notice is one state of an attachment: what is true, what each command says of it,
// and what repair does. The page what-podweir-notices.md is made from it.
type notice struct {
	name string
	// conf are settings beside the rates.
	conf map[string]any
	make func(t *testing.T, n *noticed)
	// packetBytes is the size of the packets that the truth is measured with, 0 for
	// 1,000.
	packetBytes int
	// truth is what becomes of floods before anybody mends it, after what becomes of
	// them then; "" means that it is not measured.
	truth, after string
	// Parts of what is said; a "!" in front means that it is not said. No parts
	// mean that nothing is.
	check, status, dry, repair, then []string
	// again is what a second repair says, nil for nothing to do.
	again []string
	// doctor are the codes of what it finds, noTCX those that it finds too where the
	// kernel has no TCX.
	doctor, noTCX string
	// needs are features of the kernel without which there is no such state.
	needs []string
}

const same = limited + ", " + limited

func notices() []notice {
	return slices.Concat(queueNotices(), kindNotices(), lostNotices(), goneNotices(), deviceNotices(), nodeNotices())
}

// inPod and onNode run a command on the one side or the other.
func inPod(args ...string) func(t *testing.T, n *noticed) {
	return func(t *testing.T, n *noticed) { t.Helper(); n.pod.Run(t, args[0], args[1:]...) }
}

func onNode(args ...string) func(t *testing.T, n *noticed) {
	return func(t *testing.T, n *noticed) { t.Helper(); n.node.Run(t, args[0], args[1:]...) }
}

// withoutEth0 is said of a pod that has no interface.
const withoutEth0 = "exists, without eth0"

// What commands say.
var (
	inOrder = []string{"default/web", "!DIFFERS", "!error"}
	nothing = []string{"0 with differences", "0 errors"}
	lost    = []string{"no record of", "podweir gc"}
	unheld  = []string{"NOT LIMITED default/web", "ends the chain for every packet"}
)

// Settings beside the rates.
var (
	onIFB   = map[string]any{"ingressPlace": "ifb"}
	flat    = map[string]any{"policy": "flat"}
	policed = map[string]any{"egressQueue": "none", "egressCeiling": "off"}
)

// inGroup are settings of a pod whose first share of a group's limit is noticeRate, beside others.
func inGroup(more map[string]any) map[string]any {
	conf := map[string]any{"egressRate": "64M", "ingressRate": "64M", "namespaceRate": "64M"}
	maps.Copy(conf, more)
	return conf
}

// raiseShare gives the class that holds the share on a device the whole limit of the group, in a shell.
func raiseShare(device string) string {
	return "h=" + rootOf(device) + "; tc class change dev " + device + " parent $h classid ${h}4 htb rate 64mbit"
}

// ifbName is the name of the ifb in the pod, in a shell.
const ifbName = `$(ip -o link | sed -n 's/.*: \(podweir[0-9]*\):.*/\1/p')`

// rootOf is the handle of podweir's root qdisc on a device, in a shell.
func rootOf(device string) string {
	return "$(tc qdisc show dev " + device + ` root | sed -n 's/^qdisc [a-z]* \([0-9a-f]*:\) root.*/\1/p')`
}

// prioOf is the handle of the queue of bands on a device, in a shell.
func prioOf(device string) string {
	return "$(tc qdisc show dev " + device + ` | sed -n 's/^qdisc prio \([0-9a-f]*:\) parent .*/\1/p')`
}

// queueNotices are about queues and programs, changed by others.
func queueNotices() []notice {
	return []notice{
		{
			name: "everything is in order", make: func(*testing.T, *noticed) {},
			truth: same, status: inOrder, dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "the MTU was raised above the bucket of the queue", packetBytes: 15000,
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.pod.Run(t, "ip", "link", "set", "eth0", "mtu", "20000")
				n.node.Run(t, "ip", "link", "set", "veth1", "mtu", "20000")
			},
			truth: outage + ", " + outage,
			check: []string{"tbf burst is"}, status: []string{"DIFFERS default/web", "egress change-queue", "ingress change-queue"}, doctor: "PW602",
			dry:    []string{"would repair egress change-queue", "would repair ingress change-queue"},
			repair: []string{"repaired egress", "repaired ingress"}, after: same, then: inOrder,
		},
		{
			name: "the queue of egress was removed", make: inPod("tc", "qdisc", "del", "dev", "eth0", "root"),
			truth: same, check: []string{"no root qdisc"}, status: []string{"DIFFERS default/web", "egress build-queue"}, doctor: "PW602",
			dry: []string{"would repair egress build-queue"}, repair: []string{"repaired egress build-queue"}, after: same, then: inOrder,
		},
		{
			name: "the queue of ingress was removed", conf: flat, make: onNode("tc", "qdisc", "del", "dev", "veth1", "root"),
			truth: limited + ", " + unlimited, check: []string{"no root qdisc"}, status: []string{"DIFFERS default/web", "ingress build-queue"}, doctor: "PW602",
			dry: []string{"would repair ingress build-queue"}, repair: []string{"repaired ingress build-queue"}, after: same, then: inOrder,
		},
		{
			name: "another program replaced the queue of egress by its own", make: inPod("tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo"),
			truth: same, check: []string{"root qdisc is not podweir's: pfifo"}, status: []string{"DIFFERS", "pfifo"}, doctor: "PW602",
			dry: []string{"would repair egress", "policing instead"}, repair: []string{"repaired egress"}, after: same,
			then: []string{"!DIFFERS", "policing instead", "queue none"},
		},
		{
			name: "the other program's queue went again",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.pod.Run(t, "tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo")
				n.must(t, "repair")
				n.pod.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
			},
			truth: same, check: []string{"is available again"}, status: []string{"DIFFERS", "is available again"}, doctor: "PW602",
			dry: []string{"is available again"}, repair: []string{"repaired egress"}, after: same, then: append([]string{"!policing", "queue tbf"}, inOrder...),
		},
		{
			name: "another program replaced the queue of ingress by its own", conf: flat, make: onNode("tc", "qdisc", "replace", "dev", "veth1", "root", "pfifo"),
			truth: limited + ", " + unlimited, check: []string{"root qdisc is not podweir's: pfifo"}, status: []string{"DIFFERS", "pfifo"}, doctor: "PW602",
			dry: []string{"would repair ingress", "queue on an ifb instead"}, repair: []string{"repaired ingress"}, after: same,
			then: []string{"!DIFFERS", "queue on an ifb instead"},
		},
		{
			name: "the other program's queue on the host side went again",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.node.Run(t, "tc", "qdisc", "replace", "dev", "veth1", "root", "pfifo")
				n.must(t, "repair")
				n.node.Run(t, "tc", "qdisc", "del", "dev", "veth1", "root")
			},
			truth: same, check: []string{"is available again"}, status: []string{"DIFFERS", "is available again"}, doctor: "PW602",
			dry: []string{"is available again"}, repair: []string{"repaired ingress"}, after: same, then: append([]string{"!ifb"}, inOrder...),
		},
		{
			name: "the limit of the queue was changed by tc", conf: flat, make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.node.Run(t, "sh", "-c", "h=$(tc qdisc show dev veth1 | sed -n 's/^qdisc tbf \\([0-9a-f]*:\\) root.*/\\1/p'); tc qdisc change dev veth1 root handle $h tbf rate 100mbit burst 100k limit 1048576")
			},
			truth: limited + ", " + unlimited, check: []string{"limit of the queue (tbf) is 100 Mbit/s, want 800 kbit/s"},
			status: []string{"limit of the queue (tbf) is 100 Mbit/s, want 800 kbit/s"}, doctor: "PW602",
			dry: []string{"would repair ingress change-queue"}, repair: []string{"repaired ingress change-queue"}, after: same, then: inOrder,
		},
		{
			name: "tc gave the queue a second limit, for small packets alone", conf: flat,
			make:  inPod("sh", "-c", "tc qdisc change dev eth0 root handle "+rootOf("eth0")+" tbf rate 800kbit burst 9100 limit 30000 peakrate 900kbit mtu 200"),
			truth: outage + ", " + limited, check: []string{"tbf has a second limit of 900 kbit/s, want none"},
			status: []string{"DIFFERS default/web", "second limit of 900 kbit/s"}, doctor: "PW602",
			dry: []string{"would repair egress change-queue"}, repair: []string{"repaired egress change-queue"}, after: same, then: inOrder,
		},
		{
			name: "a size table has the queue take packets for smaller than they are", conf: map[string]any{"ingressPlace": "ifb", "policy": "flat"},
			make:  inPod("sh", "-c", "tc qdisc change dev "+ifbName+" root handle "+rootOf(ifbName)+" stab overhead -1400 linklayer ethernet tbf rate 800kbit burst 9100 limit 30000"),
			truth: limited + ", " + unlimited, check: []string{"tbf takes packets for larger or smaller than they are"},
			status: []string{"DIFFERS default/web", "smaller than they are"}, doctor: "PW602",
			dry: []string{"would repair ingress change-queue"}, repair: []string{"repaired ingress change-queue"}, after: same, then: inOrder,
		},
		{
			name: "tc made the queue charge more than a packet has", conf: flat,
			make:  inPod("sh", "-c", "tc qdisc change dev eth0 root handle "+rootOf("eth0")+" tbf rate 800kbit burst 9100 limit 30000 mpu 9000"),
			truth: same, check: []string{"tbf charges packets 0 bytes more, and at least 9000"},
			status: []string{"DIFFERS default/web", "at least 9000"}, doctor: "PW602",
			dry: []string{"would repair egress change-queue"}, repair: []string{"repaired egress change-queue"}, after: same, then: inOrder,
		},
		{
			name: "programs on the hooks in the pod were removed", make: inPod("tc", "qdisc", "del", "dev", "eth0", "clsact"),
			truth: same, check: []string{"is not on the egress hook of eth0"}, status: []string{"DIFFERS default/web", "egress attach"}, doctor: "PW602",
			dry: []string{"would repair egress attach"}, repair: []string{"repaired egress attach"}, after: same, then: inOrder,
		},
		{
			name: "the ceiling was removed", make: onNode("tc", "filter", "del", "dev", "veth1", "ingress"),
			truth: same, check: []string{"pw_ceiling is not on the ingress hook"}, status: []string{"DIFFERS default/web", "egress attach-ceiling"}, doctor: "PW602",
			dry: []string{"would repair egress attach-ceiling"}, repair: []string{"repaired egress attach-ceiling"}, after: same, then: inOrder,
		},
		{
			name: "everything was removed from the devices",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				for _, what := range []string{"root", "clsact"} {
					n.pod.Run(t, "tc", "qdisc", "del", "dev", "eth0", what)
					n.node.Run(t, "tc", "qdisc", "del", "dev", "veth1", what)
				}
			},
			truth: unlimited + ", " + unlimited, check: []string{"no root qdisc"}, status: []string{"DIFFERS default/web", "egress", "ingress"}, doctor: "PW602",
			dry: []string{"would repair"}, repair: []string{"repaired egress", "repaired ingress"}, after: same, then: inOrder,
		},
		{
			name:  "the queue below the limit was removed",
			make:  inPod("sh", "-c", "tc qdisc del dev eth0 parent "+rootOf("eth0")+"1"),
			truth: outage + ", " + limited, check: []string{"egress build-queue"}, status: []string{"DIFFERS default/web", "egress build-queue"}, doctor: "PW602",
			dry: []string{"would repair egress build-queue"}, repair: []string{"repaired egress build-queue"}, after: same, then: inOrder,
		},
		{
			name: "the policer's program was removed", conf: policed, make: inPod("tc", "filter", "del", "dev", "eth0", "egress"),
			truth: unlimited + ", " + limited, check: []string{"pw_police is not on the egress hook"}, status: []string{"DIFFERS default/web", "egress attach"}, doctor: "PW602",
			dry: []string{"would repair egress attach"}, repair: []string{"repaired egress attach"}, after: same, then: inOrder,
		},
		{
			name: "the pod raised its share of its group's limit", conf: inGroup(flat), needs: []string{"htb"},
			make:  inPod("sh", "-c", raiseShare("eth0")),
			truth: unlimited + ", " + limited, check: []string{"4 has rate 64 Mbit/s"},
			status: []string{"DIFFERS default/web", "egress change-queue", "4 has rate 64 Mbit/s ceil 64 Mbit/s prio 0, want 800 kbit/s"}, doctor: "PW602 PW614",
			dry: []string{"would repair egress change-queue"}, repair: []string{"repaired egress change-queue"}, after: same, then: inOrder,
		},
		{
			name: "the pod raised its share of its group's limit on the ifb", conf: inGroup(map[string]any{"ingressPlace": "ifb", "policy": "flat"}), needs: []string{"htb"},
			make:  inPod("sh", "-c", raiseShare(ifbName)),
			truth: limited + ", " + unlimited, check: []string{"4 has rate 64 Mbit/s"},
			status: []string{"DIFFERS default/web", "ingress change-queue", "4 has rate 64 Mbit/s ceil 64 Mbit/s prio 0, want 800 kbit/s"}, doctor: "PW602 PW614",
			dry: []string{"would repair ingress change-queue"}, repair: []string{"repaired ingress change-queue"}, after: same, then: inOrder,
		},
		{
			name: "a filter of the pod's comes ahead of podweir's on its queue", conf: inGroup(nil), needs: []string{"htb"},
			make:  inPod("sh", "-c", "h="+rootOf("eth0")+"; tc filter add dev eth0 parent $h pref 1 handle 2 protocol all bpf bytecode '1,6 0 0 4294967295' classid ${h}0"),
			truth: unlimited + ", " + limited, check: []string{"filter at preference 1 on podweir's queue"},
			status: []string{"DIFFERS default/web", "egress build-queue", "filter at preference 1 on podweir's queue"}, doctor: "PW602 PW614",
			dry: []string{"would repair egress"}, repair: []string{"repaired egress"}, after: same, then: inOrder,
		},
	}
}

// kindNotices are about the kinds of queues and programs that not each kernel or
// configuration has.
func kindNotices() []notice {
	return []notice{
		{
			name: "the queue of a band was removed", needs: []string{"prio"},
			make:  inPod("sh", "-c", "tc qdisc del dev eth0 parent "+prioOf("eth0")+"1"),
			truth: same, check: []string{"egress build-queue"}, status: []string{"DIFFERS default/web", "egress build-queue"}, doctor: "PW602",
			dry: []string{"would repair egress build-queue"}, repair: []string{"repaired egress build-queue"}, after: same, then: inOrder,
		},
		{
			name: "the filter of the queue was removed", needs: []string{"prio"},
			make:  inPod("sh", "-c", "tc filter del dev eth0 parent "+rootOf("eth0")),
			truth: same, check: []string{"egress"}, status: []string{"DIFFERS default/web", "egress"}, doctor: "PW602",
			dry: []string{"would repair egress"}, repair: []string{"repaired egress"}, after: same, then: inOrder,
		},
		{
			name: "the queue on the ifb was removed", conf: map[string]any{"ingressPlace": "ifb", "policy": "flat"}, make: inPod("sh", "-c", "tc qdisc del root dev "+ifbName),
			truth: limited + ", " + unlimited, check: []string{"no root qdisc"}, status: []string{"DIFFERS default/web", "ingress build-queue"}, doctor: "PW602",
			dry: []string{"would repair ingress build-queue"}, repair: []string{"repaired ingress build-queue"}, after: same, then: inOrder,
		},
		{
			name: "the policer of ingress was removed", conf: map[string]any{"ingressQueue": "none"}, make: inPod("tc", "filter", "del", "dev", "eth0", "ingress"),
			truth: limited + ", " + unlimited, check: []string{"pw_police is not on the ingress hook"}, status: []string{"DIFFERS default/web", "ingress attach"}, doctor: "PW602",
			dry: []string{"would repair ingress attach"}, repair: []string{"repaired ingress attach"}, after: same, then: inOrder,
		},
		{
			name: "the link of a TCX program was removed", conf: map[string]any{"hostHook": "tcx"}, needs: []string{"tcx"},
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				pins, err := filepath.Glob(filepath.Join(n.pins, "net", "*", "*", "*ceiling*"))
				if err != nil || len(pins) != 1 || os.Remove(pins[0]) != nil {
					t.Fatal(pins, err)
				}
			},
			truth: same, check: []string{"pw_ceiling is not on the ingress hook"}, status: []string{"DIFFERS default/web", "egress attach-ceiling"}, doctor: "PW602",
			dry: []string{"would repair egress attach-ceiling"}, repair: []string{"repaired egress attach-ceiling"}, after: same, then: inOrder,
		},
		{
			name: "another program's netfilter chain drops what the pod sends", make: inPod("nft", "add table netdev t; add chain netdev t c { type filter hook egress device eth0 priority 0; policy drop; }"),
			truth: outage + ", " + limited, status: inOrder, dry: nothing, repair: nothing, after: outage + ", " + limited, then: inOrder,
		},
	}
}

// lostNotices are about records, pins and pods that went.
func lostNotices() []notice {
	return []notice{
		{
			name: "the record was lost", make: func(t *testing.T, n *noticed) { t.Helper(); n.loseRecord(t) },
			truth: same, check: []string{"is not attached"}, status: []string{"DIFFERS eth0 in", "no record of tbf", "error"}, doctor: "PW608",
			dry: lost, repair: lost, again: lost, after: same, then: []string{"no record of"},
		},
		{
			name: "the record was lost, and the next ADD comes",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.loseRecord(t)
				must.OK(t, n.verb(t, "ADD"))
			},
			truth: same, status: append([]string{"!instead"}, inOrder...), dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "an empty bpffs was mounted over the pins, and the next ADD comes",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.mountAnew(t)
				must.OK(t, n.verb(t, "ADD"))
			},
			truth: same, status: append([]string{"!instead"}, inOrder...), dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "an empty bpffs was mounted over the pins, and the next ADD asks for a limit into the pod alone",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.mountAnew(t)
				delete(n.conf, "egressRate")
				n.add(t)
				if out := n.pod.Run(t, "ip", "-d", "link", "show", "eth0"); strings.Contains(out, "gso_max_size 3400") {
					t.Errorf("TCP in the pod still makes small packets: %s", out)
				}
			},
			truth: unlimited + ", " + limited, status: inOrder, dry: nothing, repair: nothing, after: unlimited + ", " + limited, then: inOrder,
		},
		{
			name: "an empty bpffs was mounted over the pins, and the limit is taken off", conf: onIFB,
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.mountAnew(t)
				must.OK(t, n.verb(t, "DEL"))
			},
			truth: unlimited + ", " + unlimited, check: []string{"is not attached"}, status: []string{"No pod of this node"},
			dry: nothing, repair: nothing, after: unlimited + ", " + unlimited, then: []string{"No pod of this node"},
		},
		{
			name: "an empty bpffs was mounted over the pins, and `podweir detach` comes",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.mountAnew(t)
				if out := n.say(t, append(n.netns(), "detach")...); strings.Contains(out, "error") {
					t.Fatal(out)
				}
				n.fails(t, []string{"nothing is attached"}, append(n.netns(), "detach")...)
			},
			truth: unlimited + ", " + unlimited, check: []string{"is not attached"}, status: []string{"No pod of this node"},
			dry: nothing, repair: nothing, after: unlimited + ", " + unlimited, then: []string{"No pod of this node"},
		},
		{
			name: "another pod's namespace is at the path of one that ended", make: func(t *testing.T, n *noticed) { t.Helper(); n.renew(t) },
			truth: unlimited + ", " + unlimited, check: []string{"not"}, status: []string{"the pod is gone"}, doctor: "PW608",
			dry: []string{"the pod is gone"}, repair: []string{"the pod is gone"}, after: unlimited + ", " + unlimited, then: []string{"the pod is gone"},
		},
		{
			name: "the pod is gone, and DEL was not called", make: func(t *testing.T, n *noticed) { t.Helper(); n.end(t) },
			check: []string{"no network namespace"}, status: []string{"the pod is gone", "!DIFFERS"}, doctor: "PW608",
			dry: []string{"the pod is gone"}, repair: []string{"the pod is gone"}, then: []string{"the pod is gone"},
		},
		{
			name: "the pod's device is gone, and `podweir gc` comes",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.pod.Run(t, "ip", "link", "del", "eth0")
				n.must(t, "gc")
			},
			check: []string{"eth0"}, status: []string{"UNKNOWN default/web", withoutEth0, "podweir detach", "!the pod is gone"}, doctor: "PW608",
			dry: []string{withoutEth0}, repair: []string{withoutEth0}, again: []string{withoutEth0}, then: []string{withoutEth0},
		},
		{
			name:  "the record is lost and `podweir gc` comes",
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.loseRecord(t); n.must(t, "gc") },
			truth: unlimited + ", " + unlimited, check: []string{"is not attached"}, status: []string{"No pod of this node"},
			dry: nothing, repair: nothing, after: unlimited + ", " + unlimited, then: []string{"No pod of this node"},
		},
		{
			name: "the record is of another release", make: func(t *testing.T, n *noticed) { t.Helper(); n.replaceRecord(t, `{"version":99}`) },
			truth: same, check: []string{"is not attached"}, status: []string{"unknown record: version 99", "!no record of"}, doctor: "PW602",
			dry: []string{"unknown record: version 99"}, repair: []string{"unknown record: version 99"}, again: []string{"unknown record: version 99"},
			after: same, then: []string{"unknown record: version 99"},
		},
		{
			name: "the record is damaged", make: func(t *testing.T, n *noticed) { t.Helper(); n.replaceRecord(t, "{") },
			truth: same, check: []string{"is not attached"}, status: []string{"UNKNOWN net/c1", "unknown record: unexpected end"}, doctor: "PW602",
			dry: []string{"unknown record"}, repair: []string{"unknown record"}, again: []string{"unknown record"}, after: same, then: []string{"unknown record"},
		},
		{
			name: "the record is damaged, and DEL comes",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.replaceRecord(t, "{")
				must.OK(t, n.verb(t, "DEL"))
			},
			truth: unlimited + ", " + unlimited, check: []string{"is not attached"}, status: []string{"No pod of this node"},
			dry: nothing, repair: nothing, after: unlimited + ", " + unlimited, then: []string{"No pod of this node"},
		},
		{
			name:  "the record is of another release, and the next ADD comes",
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.replaceRecord(t, `{"version":99}`); n.add(t) },
			truth: same, status: append([]string{"!instead"}, inOrder...), dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "the slab was lost, the record was not",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				dirs, err := filepath.Glob(filepath.Join(n.pins, "node,*"))
				if err != nil || len(dirs) != 1 || os.RemoveAll(dirs[0]) != nil {
					t.Fatal(dirs, err)
				}
			},
			truth: same, check: []string{"no slot"}, status: []string{"DIFFERS default/web", "egress load", "ingress load"}, doctor: "PW602",
			dry: []string{"would repair egress load"}, repair: []string{"repaired egress load", "repaired ingress load"}, after: same, then: inOrder,
		},
		{
			name: "an empty bpffs was mounted over the pins of TCX links, and the next ADD comes", conf: map[string]any{"hostHook": "tcx"}, noTCX: "PW609",
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.mountAnew(t); n.add(t) },
			truth: same, status: append([]string{"!instead"}, inOrder...), dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name:  "an empty bpffs was mounted over the pins of a pod with the policy elephants, and the next ADD comes",
			conf:  map[string]any{"policy": "elephants"},
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.mountAnew(t); n.add(t) },
			truth: same, status: append([]string{"!instead"}, inOrder...), dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name:  "an empty bpffs was mounted over the pins of a pod with the policy flat, and the next ADD comes",
			conf:  map[string]any{"policy": "flat"},
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.mountAnew(t); n.add(t) },
			truth: same, status: append([]string{"!instead"}, inOrder...), dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "an empty bpffs was mounted over the pins, and the next ADD asks for policing",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.mountAnew(t)
				n.conf["egressQueue"] = "none"
				n.add(t)
				if out := n.pod.Run(t, "tc", "qdisc", "show", "dev", "eth0"); strings.Contains(out, "tbf") {
					t.Errorf("the queue of before is still there: %s", out)
				}
			},
			truth: same, status: append([]string{"queue none"}, inOrder...), dry: nothing, repair: nothing, after: same, then: inOrder,
		},
	}
}

// goneNotices are about pods that ended without DEL, or seem to.
func goneNotices() []notice {
	return []notice{
		{
			name: "the name of the pod's namespace went, without DEL",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				must.OK(t, unix.Unmount(n.path, unix.MNT_DETACH))
			},
			check: []string{"no network namespace"}, status: []string{"not known whether the pod is gone", "podweir detach", "!DIFFERS"}, doctor: "PW608",
			dry: []string{"its host end veth1"}, repair: []string{"its host end veth1"}, again: []string{"its host end veth1"}, then: []string{"not known whether the pod is gone"},
		},
		{
			name: "the pod's device was made anew, and `podweir gc` came before and after",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.pod.Run(t, "ip", "link", "del", "eth0")
				n.must(t, "gc")
				n.wire(t, n.pod, "veth2")
				n.must(t, "gc")
			},
			truth: unlimited + ", " + unlimited, check: []string{"has limits but is not attached"}, status: []string{"NOT LIMITED default/web", "the limited one is gone"}, doctor: "PW601",
			dry: []string{"which no limit covers"}, repair: []string{"which no limit covers"}, again: []string{"which no limit covers"}, after: unlimited + ", " + unlimited, then: []string{"NOT LIMITED default/web"},
		},
		{
			name: "the pod moved its device to another namespace, and `podweir gc` comes", make: func(t *testing.T, n *noticed) { t.Helper(); n.moveIn(t); n.must(t, "gc") },
			truth: same, check: []string{"no such device"}, status: []string{"UNKNOWN default/web", "its host end veth1", "with the other end in the network namespace /run/netns/", "podweir detach", "!no record of"}, doctor: "PW608",
			dry: []string{"its host end veth1"}, repair: []string{"its host end veth1"}, again: []string{"its host end veth1"}, after: same, then: []string{"UNKNOWN default/web"},
		},
		{
			name:  "the pod is gone, DEL was not called, and the node's uplink has the number of its host end",
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.takeNumbers(t) },
			check: []string{"no network namespace"}, status: []string{"the pod is gone", "!DIFFERS"}, doctor: "PW608",
			dry: []string{"the pod is gone"}, repair: []string{"the pod is gone"}, then: []string{"the pod is gone"},
		},
		{
			name:  "the same, and `podweir gc` comes",
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.takeNumbers(t); n.must(t, "gc") },
			check: []string{"no network namespace"}, status: []string{"No pod of this node"}, dry: nothing, repair: nothing, then: []string{"No pod of this node"},
		},
	}
}

// deviceNotices are about devices, and what else stands on them.
func deviceNotices() []notice {
	return []notice{
		{
			name: "eth0 has another name",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.pod.Run(t, "ip", "link", "set", "eth0", "down")
				n.pod.Run(t, "ip", "link", "set", "eth0", "name", "lan0")
				n.pod.Run(t, "ip", "link", "set", "lan0", "up")
			},
			truth: same, status: append([]string{"now lan0"}, inOrder...), dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "another pair took the name eth0, and the pod's traffic", make: func(t *testing.T, n *noticed) { t.Helper(); n.namesake(t) },
			truth: unlimited + ", " + unlimited, check: []string{"is another device now, which no limit covers"},
			status: []string{"NOT LIMITED default/web", "the limited one is called old0"}, doctor: "PW601",
			dry: nothing, repair: nothing, after: unlimited + ", " + unlimited, then: []string{"NOT LIMITED default/web"},
		},
		{
			name: "the host side has another name",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.node.Run(t, "ip", "link", "set", "veth1", "down")
				n.node.Run(t, "ip", "link", "set", "veth1", "name", "cali9")
				n.node.Run(t, "ip", "link", "set", "cali9", "up")
			},
			truth: same, status: inOrder, dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "the ifb was removed", conf: onIFB, make: inPod("sh", "-c", "ip link del "+ifbName),
			truth: limited + ", " + outage, check: []string{"no ifb"}, status: []string{"DIFFERS default/web", "ingress make-ifb"}, doctor: "PW602",
			dry: []string{"would repair ingress make-ifb"}, repair: []string{"repaired ingress make-ifb"}, after: same, then: inOrder,
		},
		{
			name: "the ifb was set down", conf: onIFB, make: inPod("sh", "-c", "ip link set down dev "+ifbName),
			truth: limited + ", " + outage, check: []string{"is down"}, status: []string{"DIFFERS default/web", "ingress make-ifb", "is down"}, doctor: "PW602",
			dry: []string{"would repair ingress make-ifb"}, repair: []string{"repaired ingress make-ifb"}, after: same, then: inOrder,
		},
		{
			name: "the ifb cuts packets", conf: onIFB, make: inPod("sh", "-c", "ip link set gso_max_size 6400 dev "+ifbName),
			truth: same, check: []string{"cuts packets"}, status: []string{"DIFFERS default/web", "ingress make-ifb", "cuts packets"}, doctor: "PW602",
			dry: []string{"would repair ingress make-ifb"}, repair: []string{"repaired ingress make-ifb"}, after: same, then: inOrder,
		},
		{
			name: "the redirect to the ifb was removed", conf: onIFB, make: inPod("tc", "filter", "del", "dev", "eth0", "ingress"),
			truth: limited + ", " + unlimited, check: []string{"is not on the ingress hook of eth0"}, status: []string{"DIFFERS default/web", "ingress attach-redirect"}, doctor: "PW602",
			dry: []string{"would repair ingress attach-redirect"}, repair: []string{"repaired ingress attach-redirect"}, after: same, then: inOrder,
		},
		{
			name: "a filter that accepts every packet came ahead of the redirect", conf: onIFB, needs: []string{"tcx"},
			make:  func(t *testing.T, n *noticed) { t.Helper(); accept(t, n, "all") },
			truth: limited + ", " + unlimited, check: []string{"u32 filter at preference 1 on eth0 ends the chain for every packet"},
			status: []string{"NOT LIMITED default/web", "u32 filter at preference 1 on eth0 ends the chain for every packet", "!DIFFERS"}, doctor: "PW506 PW602",
			dry: []string{"would repair ingress", "policing instead"}, repair: []string{"repaired ingress"}, after: same,
			then: []string{"DEGRADED", "u32 filter at preference 1", "!DIFFERS", "!NOT LIMITED"},
		},
		{
			name: "a BPF filter that ends the chain came ahead of the redirect", conf: onIFB, needs: []string{"tcx"},
			make:  func(t *testing.T, n *noticed) { t.Helper(); filterOn(t, n.pod, "eth0", "hostile") },
			truth: limited + ", " + unlimited, check: []string{"hostile"},
			status: []string{"NOT LIMITED default/web", "hostile (program ", "ends the chain for every packet", "!DIFFERS"}, doctor: "PW506 PW602",
			dry: []string{"would repair ingress", "policing instead"}, repair: []string{"repaired ingress"}, after: same,
			then: []string{"DEGRADED", "hostile", "!DIFFERS", "!NOT LIMITED"},
		},
		{
			name: "a filter that accepts every packet stood ahead of the redirect, and went again", conf: onIFB, needs: []string{"tcx"},
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				accept(t, n, "all")
				n.must(t, "repair")
				n.pod.Run(t, "tc", "filter", "del", "dev", "eth0", "ingress", "pref", "1")
			},
			truth: same, check: []string{"is available again"}, status: []string{"DIFFERS default/web", "is available again"}, doctor: "PW602",
			dry: []string{"would repair ingress"}, repair: []string{"repaired ingress"}, after: same,
			then: append([]string{"!DEGRADED"}, inOrder...),
		},
		{
			name: "such a filter comes, and the kernel has no TCX", conf: onIFB,
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.withoutTCX(t); accept(t, n, "all") },
			truth: limited + ", " + unlimited, check: []string{"podweir cannot go ahead of it"}, status: unheld, doctor: "PW506 PW601",
			dry: []string{"ingress is not limited"}, repair: []string{"ingress is not limited"}, again: []string{"1 errors"}, after: limited + ", " + unlimited, then: unheld,
		},
		{
			name: "such a filter comes ahead of the policer, and the kernel has no TCX", conf: map[string]any{"ingressPlace": "ifb", "ingressQueue": "none"},
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.withoutTCX(t); accept(t, n, "all") },
			truth: limited + ", " + unlimited, check: []string{"podweir cannot go ahead of it"}, status: unheld, doctor: "PW506 PW601 PW602",
			dry: []string{"ingress is not limited"}, repair: []string{"ingress is not limited"}, again: []string{"1 errors"}, after: limited + ", " + unlimited, then: unheld,
		},
		{
			name: "a filter that accepts some packets came ahead of the redirect", conf: onIFB,
			make:  func(t *testing.T, n *noticed) { t.Helper(); accept(t, n, "arp") },
			truth: same, status: append([]string{"u32 filter at preference 1 runs before the redirect"}, inOrder...), doctor: "PW506",
			dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "a netfilter ingress chain came to stand behind the redirect", conf: onIFB, make: chain,
			truth: same, check: []string{"netfilter ingress chain"}, status: []string{"DIFFERS default/web", "ingress", "netfilter ingress chain"}, doctor: "PW602",
			dry: []string{"netfilter ingress chain"}, repair: []string{"repaired ingress"}, after: same,
			then: []string{"DEGRADED", "netfilter ingress chain", "!DIFFERS"},
		},
		{
			name: "the netfilter ingress chain went again", conf: onIFB,
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				chain(t, n)
				n.must(t, "repair")
				n.pod.Run(t, "nft", "delete", "table", "netdev", "t")
			},
			truth: same, check: []string{"ingress"}, status: []string{"DIFFERS default/web", "ingress"}, doctor: "PW602",
			dry: []string{"would repair ingress"}, repair: []string{"repaired ingress"}, after: same,
			then: append([]string{"!DEGRADED"}, inOrder...),
		},
		{
			name: "the hooks of the host side were given the filters of a tc block", needs: []string{"tcx"},
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				_ = n.node.Command(t, "tc", "qdisc", "del", "dev", "veth1", "clsact").Run()
				n.node.Run(t, "tc", "qdisc", "add", "dev", "veth1", "ingress_block", "7", "egress_block", "8", "clsact")
			},
			truth: same, check: []string{"pw_ceiling is not on the ingress hook"}, status: []string{"DIFFERS default/web", "egress attach-ceiling"}, doctor: "PW602",
			dry: []string{"would repair egress attach-ceiling"}, repair: []string{"repaired egress attach-ceiling"}, after: same, then: inOrder,
		},
		{
			name: "another party's filter in the pod redirects what comes there", conf: onIFB, needs: []string{"tcx"},
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				must.OK(t, n.verb(t, "DEL"))
				n.pod.Run(t, "ip", "link", "add", "tap0", "type", "veth", "peer", "name", "tap1")
				n.pod.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
				filter := strings.Fields("filter add dev eth0 ingress pref 1 protocol 0x9000 u32 match u32 0 0 action mirred egress redirect dev tap0")
				if out, err := n.pod.Command(t, "tc", filter...).CombinedOutput(); err != nil {
					testutil.SkipFeature(t, "act_mirred: "+string(out))
				}
				n.add(t)
			},
			truth: same, status: append([]string{"DEGRADED", "not the place ifb: u32 filter", "policing instead"}, inOrder...),
			doctor: "PW603", dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "the host side is in another namespace",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.node.Run(t, "ip", "link", "set", "veth1", "netns", testutil.NewNetNS(t).Name)
			},
			check: []string{"no other end on the host"}, status: []string{"DIFFERS default/web", "ingress", "no other end on the host"}, doctor: "PW602",
			dry: []string{"would repair ingress"}, repair: []string{"repaired ingress"}, then: []string{"DEGRADED", "no other end on the host", "!DIFFERS"},
		},
		{
			name: "the pod's device was set down and up again",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.pod.Run(t, "ip", "link", "set", "eth0", "down")
				n.pod.Run(t, "ip", "link", "set", "eth0", "up")
			},
			truth: same, status: inOrder, dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "the host side is down", make: onNode("ip", "link", "set", "veth1", "down"),
			status: inOrder, dry: nothing, repair: nothing, then: inOrder,
		},
		{
			name: "eth0 has another name, and its queue was removed",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				n.pod.Run(t, "ip", "link", "set", "eth0", "down")
				n.pod.Run(t, "ip", "link", "set", "eth0", "name", "lan0")
				n.pod.Run(t, "ip", "link", "set", "lan0", "up")
				n.pod.Run(t, "tc", "qdisc", "del", "dev", "lan0", "root")
			},
			truth: same, check: []string{"no root qdisc"}, status: []string{"DIFFERS default/web", "egress build-queue"}, doctor: "PW602",
			dry: []string{"would repair egress build-queue"}, repair: []string{"repaired egress build-queue"}, after: same, then: append([]string{"now lan0"}, inOrder...),
		},
		{
			name: "TCP in the pod makes larger packets", make: inPod("ip", "link", "set", "eth0", "gso_max_size", "30000"),
			truth: same, check: []string{"egress limit-offload"}, status: []string{"DIFFERS default/web", "egress limit-offload"}, doctor: "PW602",
			dry: []string{"would repair egress limit-offload"}, repair: []string{"repaired egress limit-offload"}, after: same, then: inOrder,
		},
	}
}

// nodeNotices are about what is requested.
func nodeNotices() []notice {
	return []notice{
		{
			name: "a pod could not be limited",
			make: func(_ *testing.T, n *noticed) {
				engine.Paths{Pins: n.pins, Run: n.run}.Mail().RecordFailure(slog.New(slog.DiscardHandler), &mailbox.Failure{
					ID: attach.ID{Network: "net", ContainerID: "0ba2212f", IfName: "eth0"}, Pod: "default/db", Time: time.Now(), Error: "boom",
				})
			},
			truth: same, status: []string{"NOT LIMITED default/db", "boom"}, doctor: "PW601",
			dry: nothing, repair: nothing, after: same, then: []string{"NOT LIMITED default/db"},
		},
		{
			name:  "an operator changed the limit with `podweir set`",
			make:  func(t *testing.T, n *noticed) { t.Helper(); n.must(t, "set", "--container", "c1", "--egress", "400k") },
			truth: same, status: append([]string{"400 kbit/s", "limits changed by `podweir set`"}, inOrder...),
			dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name: "podweir's directory in /run was removed",
			make: func(t *testing.T, n *noticed) {
				t.Helper()
				must.OK(t, os.RemoveAll(n.run))
			},
			truth: same, status: inOrder, dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name:  "another rate is requested, and podweir was not called",
			make:  func(_ *testing.T, n *noticed) { n.conf["egressRate"] = "400k" },
			truth: same, check: []string{"limit of the queue (tbf) is 800 kbit/s, want 400 kbit/s"}, status: inOrder,
			dry: nothing, repair: nothing, after: same, then: inOrder,
		},
		{
			name:  "no limit is requested any more, and podweir was not called",
			make:  func(_ *testing.T, n *noticed) { delete(n.conf, "egressRate"); delete(n.conf, "ingressRate") },
			truth: same, check: []string{"has no limit but is attached"}, status: inOrder,
			dry: nothing, repair: nothing, after: same, then: inOrder,
		},
	}
}

// withoutTCX has podweir take the kernel for one that has none.
func (n *noticed) withoutTCX(t *testing.T) {
	t.Helper()
	path := filepath.Join(n.run, "features.json")
	b, err := os.ReadFile(path)
	must.OK(t, err)
	must.OK(t, os.WriteFile(path, bytes.Replace(b, []byte(`"tcx":true`), []byte(`"tcx":false`), 1), 0o600))
}

// accept puts a filter that accepts every packet of a protocol ahead of the redirect to the ifb.
func accept(t *testing.T, n *noticed, protocol string) {
	t.Helper()
	filter := strings.Fields("filter add dev eth0 ingress pref 1 protocol " + protocol + " u32 match u32 0 0 flowid 1:1")
	if out, err := n.pod.Command(t, "tc", filter...).CombinedOutput(); err != nil {
		testutil.SkipFeature(t, "cls_u32: "+string(out))
	}
}

// chain puts a netfilter ingress chain on the pod's device.
func chain(t *testing.T, n *noticed) {
	t.Helper()
	n.pod.Run(t, "nft", "add table netdev t; add chain netdev t c { type filter hook ingress device eth0 priority 0; }")
}
