// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/testutil"
)

// counter is a program of another party's that counts IPv4 packets and answers
// verdict.
type counter struct {
	prog  *ebpf.Program
	count *ebpf.Map
}

func newCounter(t *testing.T, verdict int32) *counter {
	t.Helper()
	count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = count.Close() })
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign_count", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.LoadAbs(etherType, asm.Half), asm.JNE.Imm32(asm.R0, 0x0800, "out"),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, count.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"), asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prog.Close() })
	return &counter{prog, count}
}

func (c *counter) packets(t *testing.T) (n uint64) {
	t.Helper()
	if err := c.count.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// onPod hangs the counter on the ingress hook of the pod's device: as a filter
// with this preference, or as a TCX program with none.
func (c *counter) onPod(t *testing.T, p *pod, pref string) (remove func()) {
	t.Helper()
	if pref != "" {
		pin := filepath.Join(testutil.BPFFS(t), "foreign_count")
		if err := c.prog.Pin(pin); err != nil {
			t.Fatal(err)
		}
		p.ns.Run(t, "tc", "filter", "add", "dev", "eth0", "ingress", "pref", pref, "bpf", "da", "pinned", pin)
		return func() { p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "ingress", "pref", pref) }
	}
	var l link.Link
	if err := p.ns.Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{
			Interface: p.dev.Index, Program: c.prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail(),
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The redirect to the ifb is asked last: a TCX program and filters at any
// preference that come after it see every packet, and what one of them drops
// does not arrive.
func TestPrivilegedLaterProgramsComeBeforeTheRedirect(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	const next, drop, packets = -1, 2, 20
	prefs := []string{"1", "50000", "65534"}
	if datapath.HaveTCX() {
		prefs = append(prefs, "")
	}
	for _, pref := range prefs {
		t.Run("pref "+pref, func(t *testing.T) {
			p := newNode(t).newPod(t)
			c := p.conf(inIFB(nil))
			p.must(t, "ADD", c)
			f := p.newFlow(t, true)
			sees := newCounter(t, next)
			remove := sees.onPod(t, p, pref)
			for range packets {
				f.send(t, "passed on")
			}
			for range packets {
				if got := f.receive(t); got != "passed on" {
					t.Errorf("received %q", got)
				}
			}
			if n := sees.packets(t); n != packets {
				t.Errorf("the later program saw %d packets, want %d", n, packets)
			}
			p.must(t, "CHECK", c)
			remove()
			drops := newCounter(t, drop)
			remove = drops.onPod(t, p, pref)
			for range packets {
				f.send(t, "dropped")
			}
			if n := drops.packets(t); n != packets {
				t.Errorf("the later program saw %d packets to drop, want %d", n, packets)
			}
			remove()
			f.send(t, "allowed")
			if got := f.receive(t); got != "allowed" {
				t.Errorf("the later program let %q pass", got)
			}
		})
	}
}

// A netfilter ingress chain that comes behind the redirect is blind, which is
// why podweir leaves at once: who waits for such a chain is told, CHECK and
// status name it, and a repair or the next ADD moves to policing, whatever mode
// was asked for. Then what the chain drops does not arrive.
func TestPrivilegedChainBehindTheRedirect(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "ifb", "tbf")
	for name, with := range map[string]conf{
		"auto":          nil,
		"mode by name":  {"ingressMode": "qdisc"},
		"queue by name": {"ingressQueue": "tbf"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newNode(t).newPod(t)
			c := p.conf(inIFB(with))
			c["ingressRate"] = slow
			p.must(t, "ADD", c)
			appeared := make(chan error, 1)
			go func() { appeared <- hostif.WaitNetfilterIngress(t.Context(), p.ns.NetNS, "eth0") }()
			p.ns.Run(t, "nft", "add table netdev guard; add chain netdev guard in "+
				"{ type filter hook ingress device eth0 priority 0; }; add rule netdev guard in udp dport 1-65535 counter drop")
			if err := <-appeared; err != nil {
				t.Fatal(err)
			}
			f := p.newFlow(t, true)
			f.send(t, "hidden")
			if got := f.receive(t); got != "hidden" || !strings.Contains(p.ns.Run(t, "nft", "list", "table", "netdev", "guard"), "packets 0 ") {
				t.Errorf("received %q, and the chain is not blind: this test proves nothing", got)
			}
			const chain = "netfilter ingress chain on eth0"
			wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, chain)
			if a := p.status(t); !strings.Contains(strings.Join(a.Drift, "\n"), chain) {
				t.Errorf("status tells the drift %q, want the chain", a.Drift)
			}
			p.repair(t)
			for range 5 {
				f.send(t, "forbidden")
			}
			if out := p.ns.Run(t, "nft", "list", "table", "netdev", "guard"); !strings.Contains(out, "packets 5 ") {
				t.Errorf("the chain counts\n%s\nwant 5 packets", out)
			}
			p.ns.Run(t, "nft", "delete table netdev guard")
			f.send(t, "allowed")
			if got := f.receive(t); got != "allowed" {
				t.Errorf("the chain let %q pass", got)
			}
			offer(t, p.node.NetNS, p.ns, p.addr).wantCapped(t, "policing")
			wantState(t, p, "repaired", join(podQueue, []string{
				"pod qdisc clsact", "pod clsact egress pw_band", "pod clsact ingress pw_police",
			}))
			p.must(t, "CHECK", c)
			a := p.must(t, "ADD", c)
			s := p.status(t)
			for _, d := range s.Directions {
				if d.Direction == "ingress" && (d.Queue != "none" || d.CapHolds || !strings.Contains(strings.Join(d.Notes, "\n"), chain)) {
					t.Errorf("status tells %+v, want policing because of the chain", d)
				}
			}
			if len(s.Drift) != 0 || len(s.Directions) != 2 || !strings.Contains(a.log, chain) {
				t.Errorf("status tells drift %q and %d directions, ADD logs %s", s.Drift, len(s.Directions), a.log)
			}
			p.must(t, "DEL", c)
			wantClean(t, p, "DEL")
		})
	}
}

// onNode runs a function on the node's state, as `podweir` does.
func (p *pod) onNode(t *testing.T, f func(*cni.Node) error) {
	t.Helper()
	if err := p.node.Do(func() error {
		node, err := cni.Open(p.node.paths)
		if err != nil {
			return err
		}
		defer node.Close()
		return f(node)
	}); err != nil {
		t.Fatal(err)
	}
}

func (p *pod) status(t *testing.T) status.Attachment {
	t.Helper()
	var rep *status.Report
	p.onNode(t, func(n *cni.Node) (err error) { rep, err = status.Collect(n); return err })
	if len(rep.Attachments) != 1 || rep.Attachments[0].Error != "" {
		t.Fatalf("status = %+v, want one attachment", rep)
	}
	return rep.Attachments[0]
}

func (p *pod) repair(t *testing.T) {
	t.Helper()
	p.onNode(t, func(n *cni.Node) error {
		_, err := n.Engine.Repair(t.Context(), attach.ID{Network: "net", ContainerID: p.container, IfName: "eth0"})
		return err
	})
}
