// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/plugin/testutil"
)

// Of struct __sk_buff: where it has the protocol, whatever the link layer is,
// and what it has there, in network byte order.
const (
	skbProtocol        = 16
	ipv4InNetworkOrder = 0x0008
)

// Verdicts of a program of another party's.
const (
	tcxNext   = -1
	tcActShot = 2
)

// dropTime is how long a packet may take to whoever drops it: the kernel may
// have put it off to a thread of its own by the time that the sender goes on.
const dropTime = 10 * time.Second

// counter is a program of another party's that counts IPv4 packets and answers
// verdict.
type counter struct {
	name  string
	prog  *ebpf.Program
	count *ebpf.Map
}

func newCounter(t *testing.T, name string, verdict int32) *counter {
	t.Helper()
	count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = count.Close() })
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R0, asm.R1, skbProtocol, asm.Word), asm.JNE.Imm32(asm.R0, ipv4InNetworkOrder, "out"),
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
	return &counter{name, prog, count}
}

func (c *counter) packets(t *testing.T) (n uint64) {
	t.Helper()
	if err := c.count.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// wait returns when the program has seen so many packets, and fails the test
// if it does not see them.
func (c *counter) wait(t *testing.T, n uint64, what string) {
	t.Helper()
	testutil.Eventually(t, dropTime, fmt.Sprintf("%s: %d packets", what, n), func() bool { return c.packets(t) >= n })
}

// pinned pins the program where tc(8) finds it and takes its name from.
func (c *counter) pinned(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(testutil.BPFFS(t), c.name)
	if err := c.prog.Pin(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// onTCX hangs the program behind all others of a TCX hook, which is called
// ingress or egress.
func (c *counter) onTCX(t *testing.T, ns *testutil.NetNS, index int, hook string) (remove func()) {
	t.Helper()
	at := ebpf.AttachTCXIngress
	if hook == "egress" {
		at = ebpf.AttachTCXEgress
	}
	var l link.Link
	if err := ns.Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: c.prog, Attach: at, Anchor: link.Tail()})
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

// onPod hangs the counter on the ingress hook of the pod's device: as a filter
// with this preference, or as a TCX program with none.
func (c *counter) onPod(t *testing.T, p *pod, pref string) (remove func()) {
	t.Helper()
	if pref == "" {
		return c.onTCX(t, p.ns, p.dev.Index, "ingress")
	}
	p.ns.Run(t, "tc", "filter", "add", "dev", "eth0", "ingress", "pref", pref, "bpf", "da", "pinned", c.pinned(t))
	return func() { p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "ingress", "pref", pref) }
}

// addChain adds a netfilter ingress chain to the pod's device that drops all
// UDP.
func (p *pod) addChain(t *testing.T) {
	t.Helper()
	p.ns.Run(t, "nft", "add table netdev guard; add chain netdev guard in "+
		"{ type filter hook ingress device eth0 priority 0; }; add rule netdev guard in udp dport 1-65535 counter drop")
}

func (p *pod) deleteChain(t *testing.T) {
	t.Helper()
	p.ns.Run(t, "nft", "delete table netdev guard")
}

// dropped is how many packets the chain has dropped.
func (p *pod) dropped(t *testing.T) (n int) {
	t.Helper()
	out := p.ns.Run(t, "nft", "list", "table", "netdev", "guard")
	_, counts, _ := strings.Cut(out, "counter packets ")
	if _, err := fmt.Sscan(counts, &n); err != nil {
		t.Fatalf("no count of packets: %v in %s", err, out)
	}
	return n
}

// chainDrops waits until the chain has dropped so many packets.
func (p *pod) chainDrops(t *testing.T, n int) {
	t.Helper()
	testutil.Eventually(t, dropTime, fmt.Sprintf("the chain drops %d packets", n), func() bool { return p.dropped(t) == n })
}
