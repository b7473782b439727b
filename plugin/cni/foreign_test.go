// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Whoever drops packets on a shared hook, by a TCX program or a filter, put
// there before or after podweir, still decides: in every mode, in both
// directions, on both devices.
func TestPrivilegedForeignDropDecides(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	testutil.RequireQdisc(t, "tbf", "htb", "pfifo_fast", "ifb", "clsact")
	drops := newCounter(t, "foreign_drop", tcActShot)
	pin := drops.pinned(t)
	// On the shared hooks these are like others in the list.
	alike := []string{
		"auto", "qdisc policy=flat",
		"qdisc unshapedSubnets=[10.99.0.0/16]", "clsact-podside queue=none",
	}
	for _, m := range modes(t) {
		if slices.Contains(alike, m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			m.require(t)
			n, auto := newNode(t), modes(t)[0]
			before, after := n.newPod(t), n.newPod(t)
			after.must(t, "ADD", after.conf(m.with))
			for i, g := range after.gates(drops, pin) {
				decides(t, g, after, g.name+" after podweir", func() {})
				if g = before.gates(drops, pin)[i]; m.shares(g, &auto) {
					staysAway(t, g, before, m)
					continue
				}
				decides(t, g, before, g.name+" before podweir", func() {
					before.must(t, "ADD", before.conf(m.with))
					wantNoFilterBeside(t, g, before)
				})
				before.must(t, "DEL", before.conf(m.with))
				before.afterIFB(t)
				g.clean(t)
			}
			after.must(t, "DEL", after.conf(m.with))
			after.afterIFB(t)
			for _, g := range after.gates(drops, pin) {
				g.clean(t)
			}
			wantClean(t, before, "DEL of all")
			wantClean(t, after, "DEL of all")
		})
	}
}

// A clsact qdisc that another party makes while ADD is under way is theirs: it stays when the
// pod's limits go.
func TestPrivilegedForeignClsactDuringADD(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "clsact")
	p := newNode(t).newPod(t)
	c := p.conf(both(nil))
	must.OK(t, p.whileAdded(t, c, "clsact"))
	p.must(t, "CHECK DEL", c)
	must.Have(t, "after DEL the host side", queues(t, p.node.NetNS, p.host.Name), "clsact")
	must.Have(t, "after DEL the pod side", queues(t, p.ns, "eth0"), "!clsact") // ADD made it
}

// whileAdded is the error of an ADD during which another party adds a qdisc to the host side.
func (p *pod) whileAdded(t *testing.T, c conf, qdisc ...string) error {
	t.Helper()
	p.step = func(name string) {
		if name == "record" {
			p.node.Run(t, "tc", append([]string{"qdisc", "add", "dev", p.host.Name}, qdisc...)...)
		}
	}
	defer func() { p.step = nil }()
	return p.call(t, "ADD", c).err
}

// The hooks of a device have the filters of a tc block, which the kernel does not change by the device: the
// limit holds all the same, both ways, and without TCX what cannot be attached is told. The qdisc with
// the block stays when the limit goes.
func TestPrivilegedSharedBlock(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "clsact")
	limited := conf{"egressRate": slow, "ingressRate": slow}
	for _, side := range []string{"host", "pod"} {
		for name, with := range map[string]conf{
			"auto": nil, "an ifb": {"ingressPlace": "ifb"}, "policed": {"queue": "none"}, "by name": {"mode": "clsact-" + side + "side"},
		} {
			for _, tcx := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, TCX %v", side, name, tcx), func(t *testing.T) {
					if tcx {
						testutil.RequireQdisc(t, "tcx")
					}
					n := newNode(t)
					n.rewrite(t, map[string]any{"tcx": tcx})
					p, c := n.newPod(t), conf{}
					maps.Copy(c, limited)
					maps.Copy(c, with)
					c = p.conf(c)
					ns, dev := p.node.NetNS, p.host.Name
					if side == "pod" {
						ns, dev = p.ns, "eth0"
					}
					block := strings.Fields("qdisc add dev " + dev + " ingress_block 7 egress_block 8 clsact")
					ns.Run(t, "tc", block...)
					what := "the block first"
					holds := func() {
						t.Helper()
						p.must(t, "ADD CHECK", c)
						offer(t, p.node.NetNS, p.ns, p.addr).wantCapped(t, what+": ingress")
						offer(t, p.ns, p.node.NetNS, p.gateway).wantCapped(t, what+": egress")
						s := p.status(t)
						told := fmt.Sprint(s.Directions)
						if len(s.Drift) != 0 || len(s.Directions) != 2 || !tcx && !strings.Contains(told, "the filters of tc block ") {
							t.Errorf("%s: status = %+v, want no difference, and what the block keeps away", what, s)
						}
					}
					if side == "pod" && !tcx && (name == "an ifb" || !testutil.HasQdisc(t, "prio")) {
						// Bands without prio, and policing, need a hook of the pod's device.
						wantCode(t, "ADD", p.call(t, "ADD", c).err, 102, "the filters of tc block ")
						return
					}
					holds()
					p.must(t, "DEL", c)
					p.afterIFB(t)
					testutil.Eventually(t, 5*time.Second, "nothing is left but the block", func() bool {
						return slices.Equal(p.state(t), []string{side + " qdisc clsact"})
					})
					ns.Run(t, "tc", "qdisc", "del", "dev", dev, "clsact")
					p.must(t, "ADD", c)
					_ = ns.Command(t, "tc", "qdisc", "del", "dev", dev, "clsact").Run()
					ns.Run(t, "tc", block...)
					what = "the block later"
					holds()
					p.must(t, "DEL", c)
					must.Have(t, "what there is after DEL", queues(t, ns, dev), "ingress_block 7 egress_block 8")
				})
			}
		}
	}
}

// So is a queue: ADD fails and leaves it.
func TestPrivilegedForeignQueueDuringADD(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	p := newNode(t).newPod(t)
	err := p.whileAdded(t, p.conf(both(nil)), "root", "handle", "7:", "pfifo_fast")
	wantCode(t, "ADD", err, 102, "pfifo_fast 7:0")
	must.Have(t, "after ADD failed the host side", queues(t, p.node.NetNS, p.host.Name), "pfifo_fast 7: root", "!clsact")
	must.Have(t, "after ADD failed the pod side", queues(t, p.ns, "eth0"), "!tbf", "!clsact")
}

// shares says whether podweir would have to put a filter on the hook of
// another party's: TCX programs run before it, and the order of filters
// is not that of their coming, so it stays away. A mode by name gives way to auto
// first, and a queue on the host side to an ifb.
func (m *mode) shares(g gate, auto *mode) bool {
	return !testutil.HaveTCX() && g.side == "pod" && g.filter(withoutTCX(m.want)) != "" && g.filter(withoutTCX(auto.want)) != ""
}

// filter returns podweir's filter among the parts of a state that needs the hook of the
// gate for itself, empty if there is none.
func (g *gate) filter(state []string) string {
	i := slices.IndexFunc(state, func(s string) bool {
		return strings.HasPrefix(s, g.side+" clsact "+g.hook+" pw_") &&
			!strings.HasSuffix(s, datapath.GuardProgram) && !strings.HasSuffix(s, datapath.RedirectProgram)
	})
	if i < 0 {
		return ""
	}
	return state[i]
}

// wantNoFilterBeside fails the test if podweir has put a filter on the hook where
// another party's filter is.
func wantNoFilterBeside(t *testing.T, g gate, p *pod) {
	t.Helper()
	if g.kind != "clsact" {
		return
	}
	must.Be(t, "podweir's filter beside a "+g.name, "", g.filter(p.state(t)))
}

// staysAway fails the test unless ADD refuses while the gate is closed and
// leaves nothing.
func staysAway(t *testing.T, g gate, p *pod, m mode) {
	t.Helper()
	open := g.close(t)
	err := p.call(t, "ADD", p.conf(m.with)).err
	if m.with["enforce"] != "observe" {
		wantCode(t, "ADD beside a "+g.name, err, 102, "foreign_drop")
	} else if err != nil {
		t.Errorf("ADD beside a %s = %v, want none: a pod that cannot be observed starts", g.name, err)
	}
	open()
	g.clean(t)
	wantState(t, p, "a refused ADD", []string{})
	for _, pin := range p.node.pinned(t) {
		if strings.HasPrefix(pin, "net/"+p.container+",") {
			t.Errorf("a refused ADD leaves pin %s", pin)
		}
	}
}

// decides fails the test if a packet passes while the gate is closed.
func decides(t *testing.T, g gate, p *pod, what string, whileClosed func()) {
	t.Helper()
	f := p.newFlow(t, g.toPod)
	open := g.close(t)
	whileClosed()
	const packets = 5
	dropped := g.drops.packets(t)
	for range packets {
		f.send(t, "forbidden")
	}
	// A packet that is on its way yet would find the gate open.
	g.drops.wait(t, dropped+packets, what+" drops all")
	open()
	// The flow keeps its order: what passed would come first.
	f.send(t, "allowed")
	must.Be(t, "what the "+what+" let pass", "allowed", f.receive(t))
}

// gate is a place where another party drops everything.
type gate struct {
	name, kind string
	// side and hook are where it is: pod or host, ingress or egress.
	side, hook string
	toPod      bool
	drops      *counter
	// close begins to drop and returns what ends it.
	close func(t *testing.T) (open func())
	// clean removes what close left.
	clean func(t *testing.T)
}

func (p *pod) gates(drops *counter, pin string) []gate {
	var all []gate
	for _, d := range []struct {
		ns   *testutil.NetNS
		dev  hostif.Interface
		side string
	}{{p.ns, p.dev, "pod"}, {p.node.NetNS, p.host, "host"}} {
		for _, hook := range []string{"ingress", "egress"} {
			toPod := (d.side == "pod") == (hook == "ingress")
			if testutil.HaveTCX() {
				all = append(all, gate{
					name: fmt.Sprintf("TCX program at %s %s", d.side, hook), kind: "tcx", side: d.side, hook: hook, toPod: toPod, drops: drops,
					close: func(t *testing.T) func() { t.Helper(); return drops.onTCX(t, d.ns, d.dev.Index, hook, link.Tail()) },
					clean: func(*testing.T) {},
				})
			}
			all = append(all, gate{
				name: fmt.Sprintf("filter at %s %s", d.side, hook), kind: "clsact", side: d.side, hook: hook, toPod: toPod, drops: drops,
				close: func(t *testing.T) func() {
					t.Helper()
					// clsact may be there already.
					_ = d.ns.Command(t, "tc", "qdisc", "add", "dev", d.dev.Name, "clsact").Run()
					d.ns.Run(t, "tc", "filter", "add", "dev", d.dev.Name, hook, "pref", "1", "bpf", "da", "pinned", pin)
					return func() { d.ns.Run(t, "tc", "filter", "del", "dev", d.dev.Name, hook, "pref", "1") }
				},
				clean: func(t *testing.T) {
					t.Helper()
					_ = d.ns.Command(t, "tc", "qdisc", "del", "dev", d.dev.Name, "clsact").Run()
				},
			})
		}
	}
	return all
}

// A program of another party's that is named as podweir's are is another party's: it
// stays, it decides, and podweir keeps away from its hook as from any other's.
func TestPrivilegedNamesakeIsSomebodyElses(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "clsact", "tcx")
	p := newNode(t).newPod(t)
	namesake := newCounter(t, "pw_ceiling", -1)
	pin := namesake.pinned(t)
	p.node.Run(t, "tc", "qdisc", "add", "dev", p.host.Name, "clsact")
	p.node.Run(t, "tc", "filter", "add", "dev", p.host.Name, "ingress", "pref", "1", "handle", "1", "bpf", "da", "pinned", pin)
	namesake.onTCX(t, p.ns, p.dev.Index, "egress", link.Tail())
	there := func(after string) {
		t.Helper()
		must.Have(t, "after "+after+" the host side", p.node.Run(t, "tc", "filter", "show", "dev", p.host.Name, "ingress", "pref", "1"), "pw_ceiling")
		if got := tcxNames(t, p.ns, p.dev.Index, "egress"); !slices.Contains(got, "pw_ceiling") {
			t.Errorf("after %s the pod side has %v, want the program that is not podweir's", after, got)
		}
	}
	c := p.conf(both(nil))
	p.must(t, "ADD", c)
	there("ADD")
	must.Match(t, "TCX beside a filter of another party's", []string{"pw_ceiling"}, tcxNames(t, p.node.NetNS, p.host.Index, "ingress"))
	p.must(t, "CHECK", c)
	p.repair(t)
	there("a repair")
	p.must(t, "DEL", c)
	there("DEL")
}

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
	count := must.Get(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}))(t)
	t.Cleanup(func() { _ = count.Close() })
	return &counter{name, testutil.Load(t, name, asm.Instructions{
		asm.LoadMem(asm.R0, asm.R1, skbProtocol, asm.Word), asm.JNE.Imm32(asm.R0, ipv4InNetworkOrder, "out"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, count.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"), asm.Return(),
	}), count}
}

func (c *counter) packets(t *testing.T) (n uint64) {
	t.Helper()
	must.OK(t, c.count.Lookup(uint32(0), &n))
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
	must.OK(t, c.prog.Pin(path))
	return path
}

// onTCX hangs the program on a TCX hook, which is called ingress or egress, behind all others or ahead
// of them.
func (c *counter) onTCX(t *testing.T, ns *testutil.NetNS, index int, hook string, where link.Anchor) (remove func()) {
	t.Helper()
	return ns.AttachTCX(t, index, hook, c.prog, where)
}

// onPod hangs the counter on the ingress hook of the pod's device: as a filter
// with this preference, or as a TCX program with none.
func (c *counter) onPod(t *testing.T, p *pod, pref string) (remove func()) {
	t.Helper()
	if pref == "" {
		return c.onTCX(t, p.ns, p.dev.Index, "ingress", link.Tail())
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
