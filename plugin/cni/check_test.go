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
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

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
// of pins, the slab, and programs that few configurations have.
func TestPrivilegedCheckNamesTheDifference(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "htb")
	k := treesHere(t)
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
		{"slot given back", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			must.OK(t, p.node.slab(t).GiveBack(p.dir(), terms.Egress, nil, 0))
		}, []string{"egress load: no slot for " + k.classifier().String()}},
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
		{"limits in the maps changed", both(nil), func(t *testing.T, p *pod) {
			t.Helper()
			slab := p.node.slab(t)
			dp, err := slab.Observe(p.dir(), terms.Egress)
			must.OK(t, err)
			dp.Datapath.HoldTicks++
			other := &shaping.Params{Direction: terms.Egress, Program: k.classifier(), Datapath: dp.Datapath}
			must.OK(t, slab.Configure(p.dir(), other, nil, 0))
		}, []string{"egress update: bursts, classes or thresholds of flows differ"}},
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
