// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// dir is the pin directory of the pod's interface.
func (p *pod) dir() string {
	return filepath.Join(p.node.paths.Pins, "net", p.container+",eth0", "eth0")
}

func (p *pod) unpin(t *testing.T, pin string) {
	t.Helper()
	if err := os.Remove(filepath.Join(p.dir(), pin)); err != nil {
		t.Fatal(err)
	}
}

// CHECK names every difference, changes nothing, and the next ADD mends it.
func TestPrivilegedCheckNamesTheDifference(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "htb")
	k := treesHere(t)
	tests := []struct {
		name   string
		with   conf
		break_ func(*testing.T, *pod)
		parts  []string
	}{
		{"classifier detached", both(nil), k.unclassify, []string{k.unclassified()}},
		{"clsact removed", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "clsact")
		}, []string{k.unhooked()}},
		{"link removed", both(conf{"ingressMode": "tcx-hostside"}), func(t *testing.T, p *pod) {
			t.Helper()
			p.unpin(t, "ingress-link")
			testutil.Eventually(t, 5*time.Second, "the kernel detaches the link", func() bool {
				return len(tcxNames(t, p.node.NetNS, p.host.Index, "egress")) == 0
			})
		}, []string{"ingress attach: pw_band is not on the egress hook of veth1"}},
		{"link detached", both(conf{"ingressMode": "tcx-hostside"}), func(t *testing.T, p *pod) {
			t.Helper()
			l, err := link.LoadPinnedLink(filepath.Join(p.dir(), "ingress-link"), nil)
			if err == nil {
				err = errors.Join(l.Detach(), l.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}, []string{"ingress attach: pw_band is not on the egress hook of veth1"}},
		{
			"slot given back", both(nil), func(t *testing.T, p *pod) {
				t.Helper()
				if err := p.node.slab(t).GiveBack(p.dir(), terms.Egress, nil, 0); err != nil {
					t.Fatal(err)
				}
			},
			[]string{"egress load: no slot for " + k.classifier().String()},
		},
		{"ceiling detached", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.node.Run(t, "tc", "filter", "del", "dev", p.host.Name, "ingress")
		}, []string{"egress attach-ceiling: pw_ceiling is not on the ingress hook of veth1"}},
		{"ceiling's link removed", both(conf{"hostHook": "tcx"}), func(t *testing.T, p *pod) {
			t.Helper()
			p.unpin(t, "egress-ceiling-link")
			testutil.Eventually(t, 5*time.Second, "the kernel detaches the link", func() bool {
				return len(tcxNames(t, p.node.NetNS, p.host.Index, "ingress")) == 0
			})
		}, []string{"egress attach-ceiling: pw_ceiling is not on the ingress hook of veth1"}},
		{"guard's link removed", both(conf{"podHook": "tcx", "egressRate": "100M", "egressQueue": "htb"}), func(t *testing.T, p *pod) {
			t.Helper()
			p.unpin(t, "egress-guard-link")
			testutil.Eventually(t, 5*time.Second, "the kernel detaches the link", func() bool {
				return len(tcxNames(t, p.ns, p.dev.Index, "egress")) == 0
			})
		}, []string{"egress attach-guard: pw_guard is not on the egress hook of eth0"}},
		{"queue removed", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
		}, []string{"egress build-queue: eth0: no root qdisc, want " + k.root("pod")}},
		{"queue of an earlier release", both(nil), earlierRoot, []string{"egress build-queue: eth0: root is "}},
		{"host's queue removed", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.node.Run(t, "tc", "qdisc", "del", "dev", p.host.Name, "root")
		}, []string{"ingress build-queue: veth1: no root qdisc, want " + k.root("host")}},
		{
			"rate changed by tc", both(nil), func(t *testing.T, p *pod) { t.Helper(); setRate(t, p.ns, "eth0", "20mbit") },
			[]string{"egress change-queue: eth0: limit of the queue (tbf) is 20 Mbit/s, want 10 Mbit/s"},
		},
		{"limits in the maps changed", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			slab := p.node.slab(t)
			dp, err := slab.Observe(p.dir(), terms.Egress)
			if err != nil {
				t.Fatal(err)
			}
			dp.Datapath.HoldTicks++
			other := &shaping.Params{Direction: terms.Egress, Program: k.classifier(), Datapath: dp.Datapath}
			if err := slab.Configure(p.dir(), other, nil, 0); err != nil {
				t.Fatal(err)
			}
		}, []string{"egress update: bursts, classes or thresholds of flows differ"}},
		{"ifb deleted", inIFB(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "ip", "link", "del", hostif.IFBName(p.dev.Index))
		}, []string{"ingress make-ifb: no ifb in the pod's namespace"}},
		{"ifb taken down", inIFB(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "ip", "link", "set", hostif.IFBName(p.dev.Index), "down")
		}, []string{"ingress make-ifb: podweir", "is down and loses every packet"}},
		{"redirect detached", inIFB(nil), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "ingress")
		}, []string{"ingress attach-redirect: pw_redirect is not on the ingress hook of eth0"}},
		{"guard detached", both(conf{"egressRate": "100M", "egressQueue": "htb"}), func(t *testing.T, p *pod) {
			t.Helper()
			p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "egress")
		}, []string{"egress attach-guard: pw_guard is not on the egress hook of eth0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.name, "link") {
				requireTCX(t)
			}
			p := newNode(t).newPod(t)
			c := p.conf(tt.with)
			p.must(t, "ADD", c)
			p.must(t, "CHECK", c)
			shaped := p.state(t)
			tt.break_(t, p)
			broken := p.state(t)
			if strings.HasPrefix(tt.name, "ceiling") {
				broken = join(broken, []string{noCeiling})
			}
			parts := append([]string{"eth0 (ifindex", p.ns.Path()}, tt.parts...)
			wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, parts...)
			wantState(t, p, "CHECK must not repair", broken)
			p.must(t, "ADD", c)
			p.must(t, "CHECK", c)
			wantState(t, p, "ADD mends it", shaped)
			p.must(t, "DEL", c)
			wantClean(t, p.afterIFB(t), "DEL")
		})
	}
}

// afterIFB deletes the ifb that DEL leaves to the namespace, which is about to
// go.
func (p *pod) afterIFB(t *testing.T) *pod {
	t.Helper()
	if err := p.ns.Handle.DeleteIFB(p.dev.Index); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPrivilegedCheckOfOtherLimits(t *testing.T) {
	testutil.RequireRoot(t)
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
