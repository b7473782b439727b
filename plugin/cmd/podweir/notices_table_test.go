// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"cmp"
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
	make step
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

// fill gives what a state does not say itself.
func fill(what *[]string, parts ...string) {
	if *what == nil {
		*what = parts
	}
}

// mends are what is said of a difference, and of its end, if repair takes these steps: each is a direction and an action.
// Other than that says the state itself.
func (s notice) mends(steps ...string) notice {
	fill(&s.status, append([]string{"DIFFERS default/web"}, steps...)...)
	var would, did []string
	for _, step := range steps {
		would, did = append(would, "would repair "+step), append(did, "repaired "+step)
	}
	fill(&s.dry, would...)
	fill(&s.repair, did...)
	fill(&s.then, inOrder...)
	s.truth, s.after, s.doctor = cmp.Or(s.truth, same), same, cmp.Or(s.doctor, "PW602")
	return s
}

// stays has repair do nothing, as where all is in order.
func (s notice) stays() notice {
	fill(&s.status, inOrder...)
	fill(&s.dry, nothing...)
	fill(&s.repair, nothing...)
	fill(&s.then, inOrder...)
	s.after = s.truth
	return s
}

// tells has repair change nothing, and say the same however often it comes, as status does.
func (s notice) tells(parts ...string) notice {
	for _, what := range []*[]string{&s.dry, &s.repair, &s.again, &s.then} {
		fill(what, parts...)
	}
	s.after = s.truth
	return s
}

// A step makes a state, or a part of it.
type step func(t *testing.T, n *noticed)

// inPod and onNode run a shell on the one side or the other.
func inPod(script string) step {
	return func(t *testing.T, n *noticed) { t.Helper(); n.pod.Run(t, "sh", "-ec", script) }
}

func onNode(script string) step {
	return func(t *testing.T, n *noticed) { t.Helper(); n.node.Run(t, "sh", "-ec", script) }
}

// podweir runs a command that succeeds.
func podweir(args ...string) step {
	return func(t *testing.T, n *noticed) { t.Helper(); n.must(t, args...) }
}

// verb runs a verb of the plugin.
func verb(name string) step {
	return func(t *testing.T, n *noticed) { t.Helper(); must.OK(t, n.verb(t, name)) }
}

// asking has the pod ask for something else from then on; nil is nothing.
func asking(key string, value any) step {
	return func(_ *testing.T, n *noticed) {
		if n.conf[key] = value; value == nil {
			delete(n.conf, key)
		}
	}
}

func do(f func(*noticed, *testing.T)) step {
	return func(t *testing.T, n *noticed) { t.Helper(); f(n, t) }
}

func inTurn(all ...step) step {
	return func(t *testing.T, n *noticed) {
		t.Helper()
		for _, s := range all {
			s(t, n)
		}
	}
}

// Steps of several states.
var (
	loseRecord, mountAnew = do((*noticed).loseRecord), do((*noticed).mountAnew)
	repairs, gc           = podweir("repair"), podweir("gc")
	renamed               = inPod("ip link set eth0 down; ip link set eth0 name lan0; ip link set lan0 up")
	chain                 = inPod("nft 'add table netdev t; add chain netdev t c { type filter hook ingress device eth0 priority 0; }'")
)

func takeNumbers(t *testing.T, n *noticed) { t.Helper(); n.takeNumbers(t) }

// record puts text in the place of the pod's record.
func record(text string) step {
	return func(t *testing.T, n *noticed) { t.Helper(); n.replaceRecord(t, text) }
}

// withoutEth0 is said of a pod that has no interface, heldOut of one whose other end is elsewhere.
const (
	withoutEth0 = "exists, without eth0"
	heldOut     = "its host end veth1"
)

// What commands say.
var (
	inOrder = []string{"default/web", "!DIFFERS", "!error"}
	nothing = []string{"0 with differences", "0 errors"}
	unheld  = []string{"NOT LIMITED default/web", "ends the chain for every packet"}
	noPod   = []string{"No pod of this node"}
	kept    = append([]string{"!instead"}, inOrder...)
)

// Settings beside the rates.
var (
	onIFB   = map[string]any{"ingressPlace": "ifb"}
	flat    = map[string]any{"policy": "flat"}
	flatIFB = map[string]any{"ingressPlace": "ifb", "policy": "flat"}
	policed = map[string]any{"egressQueue": "none", "egressCeiling": "off"}
)

// What becomes of floods.
const (
	inAlone  = unlimited + ", " + limited
	outAlone = limited + ", " + unlimited
	free     = unlimited + ", " + unlimited
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
	return handleOf(device, "[a-z]*", "root")
}

// handleOf is the handle of the qdisc of a kind and at a place on a device, in a shell. Where the kernel has prio, the root
// of egress is one, with the bucket below it and the prio of the bands below that.
func handleOf(device, kind, place string) string {
	return "$(tc qdisc show dev " + device + " | sed -n 's/^qdisc " + kind + ` \([0-9a-f]*:\) ` + place + `.*/\1/p')`
}

// queueNotices are about queues and programs, changed by others.
func queueNotices() []notice {
	return []notice{
		notice{name: "everything is in order", make: inTurn(), truth: same}.stays(),
		notice{
			name: "the MTU was raised above the bucket of the queue", packetBytes: 15000,
			make:  inTurn(inPod("ip link set eth0 mtu 20000"), onNode("ip link set veth1 mtu 20000")),
			truth: outage + ", " + outage, check: []string{"tbf burst is"}, repair: []string{"repaired egress", "repaired ingress"},
		}.mends("egress change-queue", "ingress change-queue"),
		notice{
			name: "the queue of egress was removed", make: inPod("tc qdisc del dev eth0 root"), check: []string{"no root qdisc"},
		}.mends("egress build-queue"),
		notice{
			name: "the queue of ingress was removed", conf: flat, make: onNode("tc qdisc del dev veth1 root"),
			truth: outAlone, check: []string{"no root qdisc"},
		}.mends("ingress build-queue"),
		notice{
			name: "another program replaced the queue of egress by its own", make: inPod("tc qdisc replace dev eth0 root handle 1: htb"),
			needs: []string{"htb"}, check: []string{"root qdisc is not podweir's: htb"}, status: []string{"DIFFERS", "htb"},
			dry: []string{"would repair egress", "policing instead"}, then: []string{"!DIFFERS", "policing instead", "queue none"},
		}.mends("egress"),
		notice{
			name:  "the other program's queue went again",
			make:  inTurn(inPod("tc qdisc replace dev eth0 root pfifo"), repairs, inPod("tc qdisc del dev eth0 root")),
			check: []string{"is available again"}, status: []string{"DIFFERS", "is available again"},
			dry: []string{"is available again"}, then: append([]string{"!policing", "queue tbf"}, inOrder...),
		}.mends("egress"),
		notice{
			name: "another program replaced the queue of ingress by its own", conf: flat, make: onNode("tc qdisc replace dev veth1 root pfifo"),
			truth: outAlone, check: []string{"root qdisc is not podweir's: pfifo"}, status: []string{"DIFFERS", "pfifo"},
			dry: []string{"would repair ingress", "queue on an ifb instead"}, then: []string{"!DIFFERS", "queue on an ifb instead"},
		}.mends("ingress"),
		notice{
			name:  "the other program's queue on the host side went again",
			make:  inTurn(onNode("tc qdisc replace dev veth1 root pfifo"), repairs, onNode("tc qdisc del dev veth1 root")),
			check: []string{"is available again"}, status: []string{"DIFFERS", "is available again"},
			dry: []string{"is available again"}, then: append([]string{"!ifb"}, inOrder...),
		}.mends("ingress"),
		notice{
			name: "the limit of the queue was changed by tc", conf: flat,
			make:  onNode("tc qdisc change dev veth1 root handle " + rootOf("veth1") + " tbf rate 100mbit burst 100k limit 1048576"),
			truth: outAlone, check: []string{"limit of the queue (tbf) is 100 Mbit/s, want 800 kbit/s"},
			status: []string{"limit of the queue (tbf) is 100 Mbit/s, want 800 kbit/s"},
		}.mends("ingress change-queue"),
		notice{
			name: "tc gave the queue a second limit, for small packets alone", conf: flat,
			make:  inPod("tc qdisc change dev eth0 root handle " + rootOf("eth0") + " tbf rate 800kbit burst 9100 limit 30000 peakrate 900kbit mtu 200"),
			truth: outage + ", " + limited, check: []string{"tbf has a second limit of 900 kbit/s, want none"},
			status: []string{"DIFFERS default/web", "second limit of 900 kbit/s"},
		}.mends("egress change-queue"),
		notice{
			name: "a size table has the queue take packets for smaller than they are", conf: flatIFB,
			make:  inPod("tc qdisc change dev " + ifbName + " root handle " + rootOf(ifbName) + " stab overhead -1400 linklayer ethernet tbf rate 800kbit burst 9100 limit 30000"),
			truth: outAlone, check: []string{"tbf takes packets for larger or smaller than they are"},
			status: []string{"DIFFERS default/web", "smaller than they are"},
		}.mends("ingress change-queue"),
		notice{
			name: "tc made the queue charge more than a packet has", conf: flat,
			make:  inPod("tc qdisc change dev eth0 root handle " + rootOf("eth0") + " tbf rate 800kbit burst 9100 limit 30000 mpu 9000"),
			check: []string{"tbf charges packets 0 bytes more, and at least 9000"}, status: []string{"DIFFERS default/web", "at least 9000"},
		}.mends("egress change-queue"),
		notice{
			name: "programs on the hooks in the pod were removed", make: inPod("tc qdisc del dev eth0 clsact"),
			check: []string{"is not on the egress hook of eth0"},
		}.mends("egress attach"),
		notice{
			name: "the ceiling was removed", make: onNode("tc filter del dev veth1 ingress"), check: []string{"pw_ceiling is not on the ingress hook"},
		}.mends("egress attach-ceiling"),
		notice{
			name: "everything was removed from the devices",
			make: inTurn(inPod("tc qdisc del dev eth0 root"), onNode("tc qdisc del dev veth1 root"),
				inPod("tc qdisc del dev eth0 clsact"), onNode("tc qdisc del dev veth1 clsact")),
			truth: free, check: []string{"no root qdisc"}, dry: []string{"would repair"},
		}.mends("egress", "ingress"),
		notice{
			name: "the queue below the limit was removed", make: inPod("tc qdisc del dev eth0 parent " + handleOf("eth0", "tbf", "") + "1"),
			truth: outage + ", " + limited, check: []string{"egress build-queue"},
		}.mends("egress build-queue"),
		notice{
			name: "the policer's program was removed", conf: policed, make: inPod("tc filter del dev eth0 egress"),
			truth: inAlone, check: []string{"pw_police is not on the egress hook"},
		}.mends("egress attach"),
		notice{
			name: "the pod raised its share of its group's limit", conf: inGroup(flat), needs: []string{"htb"},
			make: inPod(raiseShare("eth0")), truth: inAlone, check: []string{"4 has rate 64 Mbit/s"}, doctor: "PW602 PW614",
			status: []string{"DIFFERS default/web", "egress change-queue", "4 has rate 64 Mbit/s ceil 64 Mbit/s prio 0, want 800 kbit/s"},
		}.mends("egress change-queue"),
		notice{
			name: "the pod raised its share of its group's limit on the ifb", conf: inGroup(flatIFB), needs: []string{"htb"},
			make: inPod(raiseShare(ifbName)), truth: outAlone, check: []string{"4 has rate 64 Mbit/s"}, doctor: "PW602 PW614",
			status: []string{"DIFFERS default/web", "ingress change-queue", "4 has rate 64 Mbit/s ceil 64 Mbit/s prio 0, want 800 kbit/s"},
		}.mends("ingress change-queue"),
		notice{
			name: "the MTU was raised above what is cut below a share, and `podweir repair` comes", conf: inGroup(nil), needs: []string{"htb"}, packetBytes: 15000,
			make:  inTurn(inPod("ip link set eth0 mtu 20000"), onNode("ip link set veth1 mtu 20000"), repairs),
			truth: same, doctor: "PW614",
		}.stays(),
		notice{
			name: "a filter of the pod's comes ahead of podweir's on its queue", conf: inGroup(nil), needs: []string{"htb"},
			make:  inPod("h=" + rootOf("eth0") + "; tc filter add dev eth0 parent $h pref 1 handle 2 protocol all bpf bytecode '1,6 0 0 4294967295' classid ${h}0"),
			truth: inAlone, check: []string{"filter at preference 1 on podweir's queue"}, doctor: "PW602 PW614",
			status: []string{"DIFFERS default/web", "egress build-queue", "filter at preference 1 on podweir's queue"},
		}.mends("egress"),
	}
}

// kindNotices are about the kinds of queues and programs that not each kernel or
// configuration has.
func kindNotices() []notice {
	return []notice{
		notice{
			name: "the queue of a band was removed", needs: []string{"prio"}, make: inPod("tc qdisc del dev eth0 parent " + handleOf("eth0", "prio", "parent") + "1"),
			check: []string{"egress build-queue"},
		}.mends("egress build-queue"),
		notice{
			name: "the filter of the queue was removed", needs: []string{"prio"}, make: inPod("tc filter del dev eth0 parent " + rootOf("eth0")),
			check: []string{"egress"},
		}.mends("egress"),
		notice{
			name: "the queue on the ifb was removed", conf: flatIFB, make: inPod("tc qdisc del root dev " + ifbName),
			truth: outAlone, check: []string{"no root qdisc"},
		}.mends("ingress build-queue"),
		notice{
			name: "the policer of ingress was removed", conf: map[string]any{"ingressQueue": "none"}, make: inPod("tc filter del dev eth0 ingress"),
			truth: outAlone, check: []string{"pw_police is not on the ingress hook"},
		}.mends("ingress attach"),
		notice{
			name: "the link of a TCX program was removed", conf: map[string]any{"hostHook": "tcx"}, needs: []string{"tcx"},
			make: do((*noticed).loseCeiling), check: []string{"pw_ceiling is not on the ingress hook"},
		}.mends("egress attach-ceiling"),
		notice{
			name:  "another program's netfilter chain drops what the pod sends",
			make:  inPod("nft 'add table netdev t; add chain netdev t c { type filter hook egress device eth0 priority 0; policy drop; }'"),
			truth: outage + ", " + limited,
		}.stays(),
	}
}

// lostNotices are about records, pins and pods that went.
func lostNotices() []notice {
	const gone, version, damaged = "the pod is gone", "unknown record: version 99", "unknown record"
	notAttached := []string{"is not attached"}
	return []notice{
		notice{
			name: "the record was lost", make: loseRecord, truth: same, check: notAttached, doctor: "PW608",
			status: []string{"DIFFERS eth0 in", "no record of", "at 800 kbit/s on eth0", "error"}, then: []string{"no record of"},
		}.tells("no record of", "podweir gc"),
		notice{
			name: "the record was lost, and the next ADD comes", make: inTurn(loseRecord, verb("ADD")), truth: same, status: kept,
		}.stays(),
		notice{
			name: "an empty bpffs was mounted over the pins, and the next ADD comes", make: inTurn(mountAnew, verb("ADD")), truth: same, status: kept,
		}.stays(),
		notice{
			name: "an empty bpffs was mounted over the pins, and the next ADD asks for a limit into the pod alone",
			make: inTurn(mountAnew, asking("egressRate", nil), verb("ADD"), inPod("now=$(ip -d link show eth0); ! echo $now | grep 'gso_max_size 3400'")), truth: inAlone,
		}.stays(),
		notice{
			name: "an empty bpffs was mounted over the pins, and the limit is taken off", conf: onIFB, make: inTurn(mountAnew, verb("DEL")),
			truth: free, check: notAttached, status: noPod, then: noPod,
		}.stays(),
		notice{
			name: "an empty bpffs was mounted over the pins, and `podweir detach` comes", make: inTurn(mountAnew, do((*noticed).detach)),
			truth: free, check: notAttached, status: noPod, then: noPod,
		}.stays(),
		notice{
			name: "another pod's namespace is at the path of one that ended", make: do((*noticed).renew),
			truth: free, check: []string{"not"}, status: []string{gone}, doctor: "PW608", again: nothing,
		}.tells(gone),
		notice{
			name: "the pod is gone, and DEL was not called", make: do((*noticed).end),
			check: []string{"no network namespace"}, status: []string{gone, "!DIFFERS"}, doctor: "PW608", again: nothing,
		}.tells(gone),
		notice{
			name: "the pod's device is gone, and `podweir gc` comes", make: inTurn(inPod("ip link del eth0"), gc),
			check: []string{"eth0"}, status: []string{"UNKNOWN default/web", withoutEth0, "podweir detach", "!the pod is gone"}, doctor: "PW608",
		}.tells(withoutEth0),
		notice{
			name: "the record is lost and `podweir gc` comes", make: inTurn(loseRecord, gc), truth: free, check: notAttached, status: noPod, then: noPod,
		}.stays(),
		notice{
			name: "the record is of another release", make: record(`{"version":99}`),
			truth: same, check: notAttached, status: []string{version, "!no record of"}, doctor: "PW602",
		}.tells(version),
		notice{
			name: "the record is damaged", make: record("{"),
			truth: same, check: notAttached, status: []string{"UNKNOWN net/c1", "unknown record: unexpected end"}, doctor: "PW602",
		}.tells(damaged),
		notice{
			name: "the record is damaged, and DEL comes", make: inTurn(record("{"), verb("DEL")), truth: free, check: notAttached, status: noPod, then: noPod,
		}.stays(),
		notice{
			name: "the record is of another release, and the next ADD comes", make: inTurn(record(`{"version":99}`), verb("ADD")), truth: same, status: kept,
		}.stays(),
		notice{
			name: "the slab was lost, the record was not", make: do((*noticed).loseSlab),
			check: []string{"no slot"}, dry: []string{"would repair egress load"},
		}.mends("egress load", "ingress load"),
		notice{
			name: "an empty bpffs was mounted over the pins of TCX links, and the next ADD comes", conf: map[string]any{"hostHook": "tcx"}, noTCX: "PW609",
			make: inTurn(mountAnew, verb("ADD")), truth: same, status: kept,
		}.stays(),
		notice{
			name: "an empty bpffs was mounted over the pins of a pod with the policy elephants, and the next ADD comes",
			conf: map[string]any{"policy": "elephants"}, make: inTurn(mountAnew, verb("ADD")), truth: same, status: kept,
		}.stays(),
		notice{
			name: "an empty bpffs was mounted over the pins of a pod with the policy flat, and the next ADD comes",
			conf: flat, make: inTurn(mountAnew, verb("ADD")), truth: same, status: kept,
		}.stays(),
		notice{
			name:  "an empty bpffs was mounted over the pins, and the next ADD asks for policing",
			make:  inTurn(mountAnew, asking("egressQueue", "none"), verb("ADD"), inPod("now=$(tc qdisc show dev eth0); ! echo $now | grep tbf")),
			truth: same, status: append([]string{"queue none"}, inOrder...),
		}.stays(),
	}
}

// goneNotices are about pods that ended without DEL, or seem to.
func goneNotices() []notice {
	const gone, covers = "the pod is gone", "which no limit covers"
	return []notice{
		notice{
			name: "the name of the pod's namespace went, without DEL", make: do((*noticed).unmount), check: []string{"no network namespace"}, doctor: "PW608",
			status: []string{"not known whether the pod is gone", "podweir detach", "!DIFFERS"}, then: []string{"not known whether the pod is gone"},
		}.tells(heldOut),
		notice{
			name: "the pod's device was made anew, and `podweir gc` came before and after", make: inTurn(inPod("ip link del eth0"), gc, do((*noticed).wireAnew), gc),
			truth: free, check: []string{"has limits but is not attached"}, doctor: "PW601",
			status: []string{"NOT LIMITED default/web", "the limited one is gone"}, then: []string{"NOT LIMITED default/web"},
		}.tells(covers),
		notice{
			name: "the pod moved its device to another namespace, and `podweir gc` comes", make: inTurn(do((*noticed).moveIn), gc),
			truth: same, check: []string{"no such device"}, doctor: "PW608", then: []string{"UNKNOWN default/web"},
			status: []string{"UNKNOWN default/web", heldOut, "with the other end in the network namespace /run/netns/", "podweir detach", "!no record of"},
		}.tells(heldOut),
		notice{
			name: "the pod is gone, DEL was not called, and the node's uplink has the number of its host end", make: takeNumbers,
			check: []string{"no network namespace"}, status: []string{gone, "!DIFFERS"}, doctor: "PW608", again: nothing,
		}.tells(gone),
		notice{
			name: "the same, and `podweir gc` comes", make: inTurn(takeNumbers, gc), check: []string{"no network namespace"}, status: noPod, then: noPod,
		}.stays(),
	}
}

// deviceNotices are about devices, and what else stands on them.
func deviceNotices() []notice {
	ends, byTCX := "u32 filter at preference 1 on eth0 ends the chain for every packet", []string{"tcx"}
	return []notice{
		notice{name: "eth0 has another name, and its former one as altname", make: inTurn(renamed, inPod("ip link property add dev lan0 altname eth0")), truth: same, status: append([]string{"now lan0"}, inOrder...)}.stays(),
		notice{
			name: "another pair took the name eth0, and the pod's traffic", make: do((*noticed).namesake),
			truth: free, check: []string{"is another device now, which no limit covers"},
			status: []string{"NOT LIMITED default/web", "the limited one is called old0"}, doctor: "PW601", then: []string{"NOT LIMITED default/web"},
		}.stays(),
		notice{
			name: "the host side has another name", make: onNode("ip link set veth1 down; ip link set veth1 name cali9; ip link set cali9 up"), truth: same,
		}.stays(),
		notice{
			name: "the ifb was removed", conf: onIFB, make: inPod("ip link del " + ifbName), truth: limited + ", " + outage, check: []string{"no ifb"},
		}.mends("ingress make-ifb"),
		notice{
			name: "the ifb was set down", conf: onIFB, make: inPod("ip link set down dev " + ifbName),
			truth: limited + ", " + outage, check: []string{"is down"}, status: []string{"DIFFERS default/web", "ingress make-ifb", "is down"},
		}.mends("ingress make-ifb"),
		notice{
			name: "the ifb cuts packets", conf: onIFB, make: inPod("ip link set gso_max_size 6400 dev " + ifbName),
			check: []string{"cuts packets"}, status: []string{"DIFFERS default/web", "ingress make-ifb", "cuts packets"},
		}.mends("ingress make-ifb"),
		notice{
			name: "the redirect to the ifb was removed", conf: onIFB, make: inPod("tc filter del dev eth0 ingress"),
			truth: outAlone, check: []string{"is not on the ingress hook of eth0"},
		}.mends("ingress attach-redirect"),
		notice{
			name: "a filter that accepts every packet came ahead of the redirect", conf: onIFB, needs: byTCX, make: accept("all"),
			truth: outAlone, check: []string{ends}, status: []string{"NOT LIMITED default/web", ends, "!DIFFERS"}, doctor: "PW506 PW602",
			dry: []string{"would repair ingress", "policing instead"}, then: []string{"DEGRADED", "u32 filter at preference 1", "!DIFFERS", "!NOT LIMITED"},
		}.mends("ingress"),
		notice{
			name: "a BPF filter that ends the chain came ahead of the redirect", conf: onIFB, needs: byTCX,
			make:  func(t *testing.T, n *noticed) { t.Helper(); filterOn(t, n.pod, "eth0", "hostile") },
			truth: outAlone, check: []string{"hostile"}, doctor: "PW506 PW602",
			status: []string{"NOT LIMITED default/web", "hostile (program ", "ends the chain for every packet", "!DIFFERS"},
			dry:    []string{"would repair ingress", "policing instead"}, then: []string{"DEGRADED", "hostile", "!DIFFERS", "!NOT LIMITED"},
		}.mends("ingress"),
		notice{
			name: "a filter that accepts every packet stood ahead of the redirect, and went again", conf: onIFB, needs: byTCX,
			make:  inTurn(accept("all"), repairs, inPod("tc filter del dev eth0 ingress pref 1")),
			check: []string{"is available again"}, status: []string{"DIFFERS default/web", "is available again"}, then: append([]string{"!DEGRADED"}, inOrder...),
		}.mends("ingress"),
		notice{
			name: "such a filter comes, and the kernel has no TCX", conf: onIFB, make: inTurn(do((*noticed).withoutTCX), accept("all")),
			truth: outAlone, check: []string{"podweir cannot go ahead of it"}, status: unheld, doctor: "PW506 PW601", again: []string{"1 errors"}, then: unheld,
		}.tells("ingress is not limited"),
		notice{
			name: "such a filter comes ahead of the policer, and the kernel has no TCX", conf: map[string]any{"ingressPlace": "ifb", "ingressQueue": "none"},
			make:  inTurn(do((*noticed).withoutTCX), accept("all")),
			truth: outAlone, check: []string{"podweir cannot go ahead of it"}, status: unheld, doctor: "PW506 PW601 PW602", again: []string{"1 errors"}, then: unheld,
		}.tells("ingress is not limited"),
		notice{
			name: "a filter that accepts some packets came ahead of the redirect", conf: onIFB, make: accept("arp"),
			truth: same, status: append([]string{"u32 filter at preference 1 runs before the redirect"}, inOrder...), doctor: "PW506",
		}.stays(),
		notice{
			name: "a netfilter ingress chain came to stand behind the redirect", conf: onIFB, make: chain,
			check: []string{"netfilter ingress chain"}, status: []string{"DIFFERS default/web", "ingress", "netfilter ingress chain"},
			dry: []string{"netfilter ingress chain"}, then: []string{"DEGRADED", "netfilter ingress chain", "!DIFFERS"},
		}.mends("ingress"),
		notice{
			name: "the netfilter ingress chain went again", conf: onIFB, make: inTurn(chain, repairs, inPod("nft delete table netdev t")),
			check: []string{"ingress"}, then: append([]string{"!DEGRADED"}, inOrder...),
		}.mends("ingress"),
		notice{
			name: "the hooks of the host side were given the filters of a tc block", needs: byTCX,
			make:  onNode("tc qdisc del dev veth1 clsact || true; tc qdisc add dev veth1 ingress_block 7 egress_block 8 clsact"),
			check: []string{"pw_ceiling is not on the ingress hook"},
		}.mends("egress attach-ceiling"),
		notice{
			name: "another party's filter in the pod redirects what comes there", conf: onIFB, needs: byTCX,
			make: inTurn(verb("DEL"), inPod("ip link add tap0 type veth peer name tap1; tc qdisc add dev eth0 clsact"),
				filter("act_mirred", "protocol 0x9000 u32 match u32 0 0 action mirred egress redirect dev tap0"), verb("ADD")),
			truth: same, status: append([]string{"DEGRADED", "not the place ifb: u32 filter", "policing instead"}, inOrder...), doctor: "PW603",
		}.stays(),
		{
			name: "the host side is in another namespace", make: do((*noticed).hostElsewhere),
			check: []string{"no other end on the host"}, status: []string{"DIFFERS default/web", "ingress", "no other end on the host"}, doctor: "PW602",
			dry: []string{"would repair ingress"}, repair: []string{"repaired ingress"}, then: []string{"DEGRADED", "no other end on the host", "!DIFFERS"},
		},
		notice{name: "the pod's device was set down and up again", make: inPod("ip link set eth0 down; ip link set eth0 up"), truth: same}.stays(),
		notice{name: "the host side is down", make: onNode("ip link set veth1 down")}.stays(),
		notice{
			name: "eth0 has another name, and its queue was removed", make: inTurn(renamed, inPod("tc qdisc del dev lan0 root")),
			check: []string{"no root qdisc"}, then: append([]string{"now lan0"}, inOrder...),
		}.mends("egress build-queue"),
		notice{
			name: "TCP in the pod makes larger packets", make: inPod("ip link set eth0 gso_max_size 30000"), check: []string{"egress limit-offload"},
		}.mends("egress limit-offload"),
	}
}

// nodeNotices are about what is requested.
func nodeNotices() []notice {
	return []notice{
		notice{
			name: "a pod could not be limited",
			make: func(_ *testing.T, n *noticed) {
				engine.Paths{Pins: n.pins, Run: n.run}.Mail().RecordFailure(slog.New(slog.DiscardHandler), &mailbox.Failure{
					ID: attach.ID{Network: "net", ContainerID: "0ba2212f", IfName: "eth0"}, Pod: "default/db", Time: time.Now(), Error: "boom",
				})
			},
			truth: same, status: []string{"NOT LIMITED default/db", "boom"}, doctor: "PW601", then: []string{"NOT LIMITED default/db"},
		}.stays(),
		notice{
			name:  "an operator changed the limit with `podweir set`",
			make:  podweir("set", "--container", "c1", "--egress", "400k"),
			truth: same, status: append([]string{"400 kbit/s", "limits changed by `podweir set`"}, inOrder...),
		}.stays(),
		notice{
			name: "podweir's directory in /run was removed", truth: same,
			make: func(t *testing.T, n *noticed) { t.Helper(); must.OK(t, os.RemoveAll(n.run)) },
		}.stays(),
		notice{
			name: "another rate is requested, and podweir was not called", make: asking("egressRate", "400k"),
			truth: same, check: []string{"limit of the queue (tbf) is 800 kbit/s, want 400 kbit/s"},
		}.stays(),
		notice{
			name: "no limit is requested any more, and podweir was not called", make: inTurn(asking("egressRate", nil), asking("ingressRate", nil)),
			truth: same, check: []string{"has no limit but is attached"},
		}.stays(),
	}
}

// withoutTCX has podweir take the kernel for one that has none.
func (n *noticed) withoutTCX(t *testing.T) {
	t.Helper()
	testutil.Probed(t, n.run, map[string]any{"tcx": false})
}

// accept puts a filter that accepts every packet of a protocol ahead of the redirect to the ifb.
func accept(protocol string) step {
	return filter("cls_u32", "protocol "+protocol+" u32 match u32 0 0 flowid 1:1")
}

// filter puts a filter on the pod's device, ahead of all others, which needs a feature of the kernel.
func filter(feature, what string) step {
	return func(t *testing.T, n *noticed) {
		t.Helper()
		words := strings.Fields("filter add dev eth0 ingress pref 1 " + what)
		if out, err := n.pod.Command(t, "tc", words...).CombinedOutput(); err != nil {
			testutil.SkipFeature(t, feature+": "+string(out))
		}
	}
}

// lose removes the one file or directory under the pins that a pattern finds.
func (n *noticed) lose(t *testing.T, pattern ...string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(append([]string{n.pins}, pattern...)...))
	if err != nil || len(found) != 1 || os.RemoveAll(found[0]) != nil {
		t.Fatal(found, err)
	}
}

func (n *noticed) loseCeiling(t *testing.T) { t.Helper(); n.lose(t, "net", "*", "*", "*ceiling*") }
func (n *noticed) loseSlab(t *testing.T)    { t.Helper(); n.lose(t, "node,*") }
func (n *noticed) wireAnew(t *testing.T)    { t.Helper(); n.wire(t, n.pod, "veth2") }
func (n *noticed) unmount(t *testing.T) {
	t.Helper()
	must.OK(t, unix.Unmount(n.path, unix.MNT_DETACH))
}

// detach detaches, and once more in vain.
func (n *noticed) detach(t *testing.T) {
	t.Helper()
	n.must(t, append(n.netns(), "detach")...)
	n.fails(t, []string{"nothing is attached"}, append(n.netns(), "detach")...)
}

func (n *noticed) hostElsewhere(t *testing.T) {
	t.Helper()
	n.node.Run(t, "ip", "link", "set", "veth1", "netns", testutil.NewNetNS(t).Name)
}
