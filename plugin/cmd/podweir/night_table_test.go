// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/testutil/otherbuild"
)

// nightCase is a state of a node whose cause is to be found. The page "Troubleshoot" is
// made from it.
type nightCase struct {
	// name of its transcript, symptom what a reader has heard of it.
	name, symptom string
	// install are further arguments of podweir install; calico says that Calico is the
	// node's CNI.
	install []string
	calico  bool
	make    func(t *testing.T, n *nightNode)
	steps   []nightStep
	// means is what the last step says, cure what to do.
	means, cure string
}

const nightRate = 10_000_000

var nightAnnotations = map[string]string{"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "10M"}

func nightCases() []nightCase { return slices.Concat(podNightCases(), moreNightCases()) }

// podNightCases are about a pod.
func podNightCases() []nightCase {
	return []nightCase{
		{
			name: "heavy-flow", symptom: "A pod is slow, and its limit is in order: one flow has it",
			make:  func(t *testing.T, n *nightNode) { t.Helper(); n.web(t, nightRate); n.bulk(t, 1); n.requests(t) },
			steps: []nightStep{{"podweir status", nil}, {"podweir top --count 1 --flows", []string{"one flow offers most of the traffic", "tcp 10.78.0.2:"}}},
			means: "The pod sends as much as its limit lets through, and nearly all that it offers is the one connection that `top` names. What a connection offers is counted before the queue, so that it may be more than the limit. Small flows do not wait behind it.",
			cure:  "Ask the pod's owner about that connection, or raise the limit.",
		},
		{
			name: "limit-too-low", symptom: "A pod is slow, and its limit is in order: it wants more than that",
			make:  func(t *testing.T, n *nightNode) { t.Helper(); n.web(t, nightRate); n.bulk(t, 20) },
			steps: []nightStep{{"podweir status", nil}, {"podweir top --count 1 --flows", []string{"no flow offers most of it: the limit is too low"}}},
			means: "The pod sends as much as its limit lets through, over many connections of which none has a large part.",
			cure:  "Raise `kubernetes.io/egress-bandwidth`, or accept that the pod is slow: that is its limit at work.",
		},
		{
			name: "max-rate", symptom: "A pod is slow, and it asks for more than it gets", install: []string{"--default", "maxRate=200k"},
			make:  func(t *testing.T, n *nightNode) { t.Helper(); n.web(t, 5*nightRate) },
			steps: []nightStep{{"podweir status", []string{"lower limit than it asks for", "Decided by maxRate: default/web egress has 200 kbit/s in place of 50 Mbit/s"}}},
			means: "The operator's maximum is lower than what the pod's annotation asks for. PW218 of `podweir doctor` warns where that is so for most pods of the node.",
			cure:  "Raise `maxRate` if it is not meant so (a letter may be missing), or lower the annotation.",
		},
		{
			name: "misspelt", symptom: "A pod asks for a limit and has none",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				entry, err := os.ReadFile(n.entry)
				must.OK(t, err)
				// So that the runtime passes neither limits nor annotations.
				text := strings.NewReplacer(`"bandwidth"`, `"bandwdth"`, "pod-annotations", "pod-anotations").Replace(string(entry))
				must.OK(t, os.WriteFile(n.entry, []byte(text), 0o600))
				n.sandbox(t, nightAnnotations)
			},
			steps: []nightStep{
				{"podweir status", []string{"NOT LIMITED default/web cause it asks for a limit"}},
				{"podweir doctor", []string{"PW207", `misspelt: "bandwdth", did you mean "bandwidth"?`}},
			},
			means: "The runtime passes limits only for the capability `bandwidth`, and podweir's entry has another word for it.",
			cure:  "Correct the entry, or run `podweir install`, which writes it; then recreate the pod. An agent limits running pods by itself.",
		},
		{
			name: "program-ahead", symptom: "A pod receives more than its limit", install: []string{"--default", "ingressPlace=ifb"},
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.web(t, nightRate)
				filterOn(t, n.cli.pod, "eth0", "hostile")
			},
			steps: []nightStep{{"podweir status", []string{"NOT LIMITED", "hostile (program ", "ends the chain for every packet, before podweir's redirect"}}},
			means: "Another program on the pod's device answers every packet before podweir's redirect, which runs last, so that no packet comes to the queue.",
			cure:  "`bpftool prog show id NUMBER` names the program's owner: it has to answer `TCX_NEXT` (-1), or to go. Until then the agent, or `podweir repair`, polices ahead of it.",
		},
		{
			name: "lost-elsewhere", symptom: "A pod loses packets, and its limit is idle",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				if _, err := exec.LookPath("nft"); err != nil {
					testutil.SkipFeature(t, "nft")
				}
				n.web(t, nightRate)
				n.node.Run(t, "nft", "add table inet filter; add chain inet filter entry { type filter hook input priority 0; }; add rule inet filter entry udp dport 53 counter drop")
				n.requests(t)
			},
			steps: []nightStep{
				{"podweir status", []string{"what is slow or lost is not podweir", "Packets are lost elsewhere on this node: nftables rule"}},
				{"podweir explain default/web", []string{"the limit is not what slows it", "losing nftables rule", "of chain entry in table inet filter"}},
			},
			means: "No limit is at work. A rule of the node's packet filter drops what the pod sends.",
			cure:  "`nft -a list table inet filter` shows the rule with its number: ask who made it.",
		},
		{
			name: "tampering", symptom: "A pod's limit goes away and comes back",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.web(t, nightRate)
				n.sandbox(t, nightAnnotations)
				n.start(t)
				often(t, 300*time.Millisecond, func() { _ = n.cli.pod.Command(t, "tc", "qdisc", "del", "dev", "eth0", "root").Run() })
			},
			steps: []nightStep{{"podweir status", []string{"TAMPERED", "a process in the pod that has CAP_NET_ADMIN"}}},
			means: "Another process removes podweir's queue each time the agent has put it back. The limit holds meanwhile: the ceiling on the host side is out of the pod's reach.",
			cure:  "Take `CAP_NET_ADMIN` from the pod, or find what runs `tc` on the node.",
		},
		{
			name: "raw-socket", symptom: "A pod loses packets that it should not lose",
			make:  func(t *testing.T, n *nightNode) { t.Helper(); n.web(t, nightRate); n.rawSocket(t) },
			steps: []nightStep{{"podweir status", nil}, {"podweir doctor", []string{"PW611", "a process in the pod goes around the queue with a packet socket"}}},
			means: "A process in the pod sends past its queue. What exceeds the limit is dropped at the host side, so that the limit holds.",
			cure:  "Look at what runs in the pod, and drop `CAP_NET_RAW` from it.",
		},
		{
			name: "foreign-qdisc", symptom: "A pod gets more than its limit, or less",
			install: []string{"--default", "policy=flat"},
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.web(t, nightRate)
				n.node.Run(t, "tc", "qdisc", "replace", "dev", "veth1", "root", "pfifo")
			},
			steps: []nightStep{{"podweir status", []string{"DIFFERS", "root qdisc is not podweir's: pfifo"}}, {"podweir doctor", []string{"PW602", "PW505: veth1 has pfifo"}}},
			means: "Another program put its own queue in the place of podweir's on the pod's device.",
			cure: "Find who does: a chained bandwidth plugin, a network QoS agent, a script. `podweir repair` gives the pod its limit in another place at once; " +
				"`defaults.replaceQdisc=true` in the chart gives the device to podweir.",
		},
	}
}

// moreNightCases are about the node, and about releases.
func moreNightCases() []nightCase {
	return []nightCase{
		{
			name: "calico", symptom: "Beside Calico a pod's small requests are slow", calico: true,
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.web(t, nightRate)
				// What Felix makes of the same annotation (e2e/traffic has it in full).
				n.node.Run(t, "tc", "qdisc", "replace", "dev", "veth1", "root", "handle", "1:", "tbf", "rate", "10mbit", "burst", "40mb", "latency", "25ms")
			},
			steps: []nightStep{{"podweir status", nil}, {"podweir doctor", []string{"PW403", "Calico enforces kubernetes.io/*-bandwidth, too, and its limit is before podweir's on default/web"}}},
			means: "Calico reads the same annotations since v3.30. All packets to the pod wait in its token bucket, before podweir can let small flows go first.",
			cure:  "Take Calico's limit away, or leave limits to Calico: [Install beside Calico](calico.md).",
		},
		{
			name: "wrong-conflist", symptom: "New pods have no limit",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.put(t, "etc/cni/net.d/00-bridge.conflist", `{"cniVersion":"1.0.0","name":"bridge","plugins":[{"type":"ptp"}]}`)
			},
			steps: []nightStep{{"podweir status", []string{"No pod of this node has a bandwidth limit"}}, {"podweir doctor", []string{"PW208", "00-bridge.conflist sorts before", "also PW202"}}},
			means: "The runtime takes the first file of its directory, and that is not podweir's: it never calls `podweir-cni`.",
			cure: "Remove the file if it is left over. If its CNI is the one to use, give its file a name that sorts behind `00-podweir-`: then the agent puts podweir into its chain; " +
				"without an agent, `podweir install` does.",
		},
		{
			name: "nri-off", symptom: "With the delivery `nri`, pods start without a limit",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.must(t, "uninstall", "--root", n.root)
				n.put(t, "etc/containerd/config.toml", "version = 2\n[plugins.'io.containerd.nri.v1.nri']\n  disable = true\n")
				t.Setenv("PODWEIR_DELIVERY", "nri") // as the chart has it
			},
			steps: []nightStep{{"podweir doctor", []string{"PW115", "the runtime's configuration has NRI off"}}},
			means: "The runtime does not call podweir when a pod starts, because its NRI is off.",
			cure:  "Switch NRI on and restart the runtime, or use the delivery `watch`, which needs no NRI.",
		},
		{
			name: "api-server-down", symptom: "Annotations that change have no effect",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.web(t, nightRate)
				n.sandbox(t, nightAnnotations)
				a := n.start(t)
				a.until(t, time.Minute, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })
				a.until(t, time.Minute, "the agent watches limits", a.watches)
				n.put(t, "proc/6/comm", "podweir\n")
				n.put(t, "proc/6/cmdline", "podweir\x00agent\x00--pod=kube-system/podweir-x7k2p/1\x00")
				n.api.CloseClientConnections()
				n.api.Close()
			},
			steps: []nightStep{{"podweir status", nil}, {"podweir doctor", []string{"PW613", "API server", "connection refused"}}},
			means: "The agent cannot reach the API server, so it does not learn of changes. Pods keep the limits that they have, new pods get theirs from the runtime, and the agent repairs both.",
			cure:  "Make the API server reachable from the node. The agent goes on by itself.",
		},
		{
			name: "mtu", symptom: "A pod's large packets are lost, small ones pass",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.web(t, nightRate)
				n.cli.pod.Run(t, "ip", "link", "set", "eth0", "mtu", "20000")
				n.node.Run(t, "ip", "link", "set", "veth1", "mtu", "20000")
			},
			steps: []nightStep{{"podweir status", []string{"DIFFERS", "tbf burst is"}}, {"podweir doctor", []string{"PW602", "larger packets are lost; was the MTU raised?"}}},
			means: "The MTU was raised after the pod had its limit. A packet that is larger than the bucket of the queue can never leave it.",
			cure:  "`podweir repair` makes the bucket larger; the agent does so by itself.",
		},
		{
			name: "half-upgraded", symptom: "After an upgrade some pods behave otherwise than others",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				n.web(t, nightRate)
				nodes, err := filepath.Glob(filepath.Join(n.cli.pins, "node,*"))
				if err != nil || len(nodes) != 1 {
					t.Fatal(nodes, err)
				}
				otherbuild.Put(t, nodes[0], filepath.Join(n.cli.pins, "net", "sandbox-1,eth0", "eth0"), n.node, n.cli.pod)
			},
			steps: []nightStep{{"podweir status", []string{"DIFFERS", "is of another build"}}},
			means: "The pod still runs the programs of the release that attached it: the upgrade did not reach it.",
			cure:  "`podweir repair` moves it to this release without a gap; an agent of this release does so by itself. Is the agent's pod of this release running on the node?",
		},
		{
			name: "kernel-memory", symptom: "A new pod has no limit, and others do",
			make: func(t *testing.T, n *nightNode) {
				t.Helper()
				// In less the plugin does not live, in more it has its maps; where that is differs
				// from run to run.
				for range 10 {
					for limit := 3 << 20; limit < 8<<20; limit += 1 << 18 {
						if n.inCgroup(t, limit, nightRate); n.refused(t) {
							return
						}
					}
				}
				t.Fatal("the kernel refuses no memory")
			},
			steps: []nightStep{{"podweir status", []string{"NOT LIMITED", "cannot allocate memory"}}, {"podweir doctor", []string{"PW601", "memory limit"}}},
			means: "The kernel refused the memory for the pod's counters and queues.",
			cure:  "Raise the memory limit of the cgroup in which the runtime executes plugins, or free memory on the node. The agent then sets the limit by itself.",
		},
	}
}

// refused says whether the pod could not be limited. If it was, everything is taken off again.
func (n *nightNode) refused(t *testing.T) bool {
	t.Helper()
	all, _ := (engine.Paths{Run: n.cli.run}).Mail().Failures()
	if len(all) == 0 {
		_, _ = n.do(t, "detach", "--container", "sandbox-1")
		_ = os.RemoveAll(n.cli.pins) // the maps of the node, too
	}
	return len(all) > 0
}

// calico makes Calico the node's CNI, with a device that Felix makes for limits.
func (n *nightNode) calico(t *testing.T, file string) {
	t.Helper()
	must.OK(t, os.Remove(filepath.Join(n.root, "etc/cni/net.d/10-net.conflist")))
	n.put(t, filepath.Join("etc/cni/net.d", file), `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"type":"calico"},{"type":"portmap","capabilities":{"portMappings":true}}]}`)
	for _, plugin := range []string{"calico", "portmap"} {
		n.put(t, "opt/cni/bin/"+plugin, "x")
	}
	n.put(t, "proc/5/comm", "calico-node\n")
	n.node.Run(t, "ip", "link", "add", "bwcali012345678", "type", "ifb")
}

// rawSocket sends past the pod's queue, by a packet socket (packet(7),
// PACKET_QDISC_BYPASS): 40 Mbit/s.
func (n *nightNode) rawSocket(t *testing.T) {
	t.Helper()
	const size = 1000
	to, from := n.node.Interface(t, "veth1"), n.cli.pod.Interface(t, "eth0")
	frame := make([]byte, size)
	copy(frame, to.HardwareAddr)
	copy(frame[6:], from.HardwareAddr)
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	ip := frame[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 78, 0, 2})
	copy(ip[16:], []byte{10, 78, 0, 1})
	fd := -1
	must.OK(t, n.cli.pod.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	}))
	t.Cleanup(func() { _ = unix.Close(fd) })
	often(t, 2*time.Millisecond, func() {
		for range 10 {
			_ = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: from.Index, Halen: 6, Addr: [8]byte(frame[:8])})
		}
	})
}
