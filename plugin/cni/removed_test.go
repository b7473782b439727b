// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Which way packets are redirected to the ifb is what the self-test found,
// whatever the kernel's version. The way by mirred works on every kernel; the
// one by bpf_redirect loses everything on those where the self-test says so.
func TestPrivilegedWayToTheIFBIsTheOneThatWorks(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact", "mirred")
	found := newNode(t).rewrite(t, nil)["redirect"]
	if found != "bpf" && found != "mirred" {
		t.Fatalf("the self-test found no way to the ifb: %q", found)
	}
	for _, way := range []string{"bpf", "mirred"} {
		t.Run(way, func(t *testing.T) {
			p := newNode(t).newPod(t)
			p.node.rewrite(t, map[string]any{"redirect": way})
			before := p.raw(t)
			c := p.conf(inIFB(nil))
			p.must(t, "ADD", c)
			filters := p.ns.Run(t, "tc", "filter", "show", "dev", "eth0", "ingress")
			must.Be(t, "redirected by mirred: "+filters, way == "mirred", strings.Contains(filters, "mirred"))
			p.must(t, "CHECK", c)
			if way == "mirred" || found == "bpf" {
				p.crosses(t)
			} else if p.reached(t) {
				t.Error("packets pass by bpf_redirect, although the self-test says that they do not")
			}
			p.goes(t, c)
			must.Match(t, "what DEL leaves", before, p.raw(t))
		})
	}
}

// reached says whether the pod gets an answer from its node.
func (p *pod) reached(t *testing.T) bool {
	t.Helper()
	return p.ns.Command(t, "ping", "-c3", "-i0.1", "-W1", p.gateway).Run() == nil
}

// An empty bpffs comes over the pins, and with the records what podweir remembers of the
// devices. What it has set itself is not what was there before.
func TestPrivilegedValuesOfBeforeALostRecord(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "clsact")
	n := newNode(t)
	p := n.newPod(t)
	before := p.former(t)
	lose := func(at conf) {
		p.must(t, "ADD", p.conf(at))
		if p.former(t) == before {
			t.Fatalf("with %v the devices are as they were before, so that nothing can be lost", at)
		}
		dir := filepath.Dir(n.paths.Pins)
		must.OK(t, unix.Mount("bpf", dir, "bpf", 0, "mode=0700"))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	lose(both(nil))
	p.ns.Run(t, "ip", "link", "set", "eth0", "mtu", "1400") // by which the size is another one
	p.must(t, "ADD", p.conf(both(conf{"egressRate": "1G"})))
	must.Be(t, "TCP's largest packets at a higher rate", before.gso, p.former(t).gso)
	p.must(t, "ADD", p.conf(nil))
	must.Be(t, "without limits", before, p.former(t))
	p.ns.Run(t, "ip", "link", "set", "eth0", "mtu", "1500")
	lose(both(conf{"egressRate": "100M"}))
	p.must(t, "ADD", p.conf(conf{"ingressRate": "100M"}))
	must.Be(t, "the pod's sysctls after one direction at 100M", before.pacing, p.former(t).pacing)
	p.must(t, "ADD", p.conf(nil))
	lose(both(nil))
	p.must(t, "ADD", p.conf(conf{"ingressRate": "100M"}))
	if got := p.former(t).gso; got != before.gso || strings.Contains(p.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0"), "tbf") {
		t.Errorf("the limit out of the pod, which nothing requests any more, is still there; TCP makes packets of up to %v", got)
	}
	p.must(t, "CHECK", p.conf(conf{"ingressRate": "100M"}))
	p.must(t, "ADD", p.conf(nil))
	must.Be(t, "after one direction, without limits", before, p.former(t))
	for _, rate := range []string{"10M", "100M"} { // by the device, by sysctls
		at := both(conf{"egressRate": rate})
		lose(at)
		p.must(t, "DEL", p.conf(nil))
		must.Be(t, rate+": after DEL", before, p.former(t))
		lose(at)
		p.ns.Run(t, "ip", "link", "set", "eth0", "mtu", "1400")
		p.onNode(t, func(node *engine.Node) error {
			_, err := node.RemoveLost(t.Context())
			return err
		})
		must.Be(t, rate+": after gc", before, p.former(t))
		p.ns.Run(t, "ip", "link", "set", "eth0", "mtu", "1500")
	}
}

// former is what a pod's devices have, and podweir changes.
type former struct {
	gso     [2]uint32
	lengths [2]int
	clsact  [2]bool
	pacing  string
}

func (p *pod) former(t *testing.T) former {
	t.Helper()
	dev, host := p.ns.Interface(t, "eth0"), p.node.Interface(t, p.host.Name)
	has := func(ns *testutil.NetNS, name string) bool {
		return strings.Contains(ns.Run(t, "tc", "qdisc", "show", "dev", name), "clsact")
	}
	return former{
		gso: [2]uint32{dev.GSOMaxSize, dev.GSOIPv4MaxSize}, lengths: [2]int{dev.TxQueueLen, host.TxQueueLen},
		clsact: [2]bool{has(p.ns, "eth0"), has(p.node.NetNS, host.Name)}, pacing: fmt.Sprint(p.pacing(t)),
	}
}

// The AWS Network Policy Agent, when it starts with other programs than before, deletes the
// first filter with handle 1 on each hook, whoever made it: none of podweir's has it.
func TestPrivilegedFiltersKeepOffHandle1(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "htb")
	for name, with := range shapes {
		t.Run(name, func(t *testing.T) {
			p := newNode(t).newPod(t)
			c := p.conf(with)
			p.must(t, "ADD", c)
			for ns, index := range map[*testutil.NetNS]int{p.node.NetNS: p.host.Index, p.ns: p.dev.Index} {
				d := must.Get(queue.Observe(ns.Handle, index))(t)
				for i := range d.HookFilters {
					if f := &d.HookFilters[i]; f.FilterHandle == 1 {
						t.Errorf("the filter %s has handle 1", f.Name)
					}
				}
			}
			p.goes(t, c)
		})
	}
}

// The list of the host's queues is read once for all pods, and again for one that
// came after it.
func TestPrivilegedQueuesOfALaterPod(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "clsact")
	n := newNode(t)
	first, later := n.newPod(t), n.newPod(t)
	first.must(t, "ADD", first.conf(both(conf{"ingressPlace": "host"})))
	first.onNode(t, func(node *engine.Node) error {
		queues := node.Queues()
		counters := func(p *pod, s terms.Side) uint64 {
			t.Helper()
			return must.Get(queues.Statistics(p.record(t, node), s))(t).Packets
		}
		before := counters(first, terms.SideHost)
		later.must(t, "ADD", later.conf(both(conf{"ingressPlace": "host"})))
		later.crosses(t)
		first.crosses(t)
		must.Be(t, "packets counted at the host, whose list is not read again", before, counters(first, terms.SideHost))
		if to, from := counters(later, terms.SideHost), counters(later, terms.SidePod); to == 0 || from == 0 {
			t.Errorf("a pod that came later has %d packets to it and %d from it, want some", to, from)
		}
		return nil
	})
}

var handleOf = regexp.MustCompile(`qdisc (\S+) ([0-9a-f]+):`)

// handle is the handle of the first qdisc of a kind on a device.
func handle(t *testing.T, ns *testutil.NetNS, dev, kind string) string {
	t.Helper()
	for _, m := range handleOf.FindAllStringSubmatch(ns.Run(t, "tc", "qdisc", "show", "dev", dev), -1) {
		if m[1] == kind {
			return m[2] + ":"
		}
	}
	t.Fatalf("no %s on %s", kind, dev)
	return ""
}

// dir is the pin directory of the pod's interface.
func (p *pod) dir() string {
	return filepath.Join(p.node.paths.Pins, "net", p.container+",eth0", "eth0")
}

func (p *pod) unpin(t *testing.T, pin string) {
	t.Helper()
	must.OK(t, os.Remove(filepath.Join(p.dir(), pin)))
}

// CHECK names every difference, changes nothing, and the next ADD mends it. Those that a reader
// of what-podweir-notices.md can see are made by TestPrivilegedNotices of cmd/podweir; these are
// of pins, the slab, queues that not each kernel has, and programs that few configurations have.
func TestPrivilegedCheckNamesTheDifference(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "htb")
	onHost, guarded := both(conf{"ingressMode": "tcx-hostside"}), conf{"egressRate": "100M", "unshapedSubnets": []string{"10.99.0.0/16"}}
	tests := []struct {
		name   string
		with   conf
		break_ func(*testing.T, *pod)
		parts  []string
	}{
		{"link removed", onHost, func(t *testing.T, p *pod) {
			t.Helper()
			p.unpin(t, "ingress-link")
			testutil.Eventually(t, 5*time.Second, "the kernel detaches the link", func() bool {
				return len(tcxNames(t, p.node.NetNS, p.host.Index, "egress")) == 0
			})
		}, []string{"ingress attach: pw_band is not on the egress hook of veth1"}},
		{"link detached", onHost, func(t *testing.T, p *pod) {
			t.Helper()
			l, err := link.LoadPinnedLink(filepath.Join(p.dir(), "ingress-link"), nil)
			if err == nil {
				err = errors.Join(l.Detach(), l.Close())
			}
			must.OK(t, err)
		}, []string{"ingress attach: pw_band is not on the egress hook of veth1"}},
		{"guard's link removed", both(conf{"egressRate": "100M", "unshapedSubnets": []string{"10.99.0.0/16"}, "podHook": "tcx"}), func(t *testing.T, p *pod) {
			t.Helper()
			p.unpin(t, "egress-guard-link")
			testutil.Eventually(t, 5*time.Second, "the kernel detaches the link", func() bool {
				return len(tcxNames(t, p.ns, p.dev.Index, "egress")) == 0
			})
		}, []string{"egress attach-guard: pw_guard is not on the egress hook of eth0"}},
		{"guard detached", both(guarded), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "egress")
		}, []string{"egress attach-guard: pw_guard is not on the egress hook of eth0"}},
		{"classifier of the host's bands", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.node.Run(t, "tc", "filter", "del", "dev", p.host.Name, "parent", handle(t, p.node.NetNS, p.host.Name, "prio"))
		}, []string{"ingress "}},
		{"depth of the heavy one of the bands", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "tc", "qdisc", "replace", "dev", "eth0", "parent", handle(t, p.ns, "eth0", "prio")+"2", "bfifo", "limit", "3000")
		}, []string{"egress "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.name, "link") {
				testutil.RequireQdisc(t, "tcx")
			}
			if strings.Contains(tt.name, "bands") {
				testutil.RequireQdisc(t, "prio")
			}
			p := newNode(t).newPod(t)
			c := p.conf(tt.with)
			p.must(t, "ADD CHECK", c)
			shaped := p.state(t)
			tt.break_(t, p)
			broken := p.state(t)
			parts := append([]string{"eth0 (ifindex", p.ns.Path()}, tt.parts...)
			wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, parts...)
			wantState(t, p, "CHECK must not repair", broken)
			p.must(t, "ADD CHECK", c)
			wantState(t, p, "ADD mends it", shaped)
			p.goes(t, c)
		})
	}
}

// afterIFB deletes the ifb that DEL leaves to the namespace, which is about to
// go.
func (p *pod) afterIFB(t *testing.T) *pod {
	t.Helper()
	must.OK(t, p.ns.Handle.DeleteIFB(p.dev.Index))
	return p
}

func TestPrivilegedCheckOfOtherLimits(t *testing.T) {
	p := newNode(t).newPod(t)
	wantCode(t, "CHECK of what was never added", p.call(t, "CHECK", p.conf(both(nil))).err, 100, "not attached")
	p.must(t, "ADD", p.conf(both(nil)))
	wantCode(t, "CHECK with another rate", p.call(t, "CHECK", p.conf(both(conf{"egressRate": "20M"}))).err, 101,
		"limit of the queue (tbf) is 10 Mbit/s, want 20 Mbit/s")
	wantCode(t, "CHECK with bad limits", p.call(t, "CHECK", p.conf(both(conf{"egressRate": "10X"}))).err, 7, "egressRate", "10X")
	p.netns = "/run/netns/nowhere"
	c := p.conf(both(conf{"prevResult": conf{"cniVersion": "1.1.0"}}))
	wantCode(t, "CHECK in no namespace", p.call(t, "CHECK", c).err, 8, "/run/netns/nowhere")
	p.node.paths = engine.Paths{Pins: filepath.Join(t.TempDir(), "x"), Run: p.node.paths.Run}
	wantCode(t, "CHECK without bpffs", p.call(t, "CHECK", c).err, 100, "BPF file system")
}
