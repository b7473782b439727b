// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Offsets into an Ethernet frame with an IPv4 packet.
const (
	etherDestination = 0
	etherSource      = 6
	etherType        = 12
	ipv4Destination  = 14 + 16
)

// peerRedirect is what a dataplane with host routing in BPF has at the ingress
// hook of the uplink and of the other pods: packets to the pod get its link
// layer addresses and go straight to its end of the pair, past everything on
// the host's.
func peerRedirect(t *testing.T, p *pod) *ebpf.Program {
	t.Helper()
	return redirectProgram(t, p.addr, p.dev.HardwareAddr, p.host.HardwareAddr, p.host.Index, asm.FnRedirectPeer)
}

// redirectProgram sends packets to an address on by a device, with link layer
// addresses of where they go and come from. It leaves others to what comes next.
func redirectProgram(t *testing.T, addr string, to, from net.HardwareAddr, ifindex int, by asm.BuiltinFunc) *ebpf.Program {
	t.Helper()
	addr4 := int32(binary.BigEndian.Uint32(net.ParseIP(addr).To4()))
	store := func(offset int32, b []byte) asm.Instructions {
		word := make([]byte, 8)
		copy(word, b)
		return asm.Instructions{
			asm.LoadImm(asm.R0, int64(binary.LittleEndian.Uint64(word)), asm.DWord),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, offset), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8),
			asm.Mov.Imm(asm.R4, int32(len(b))), asm.Mov.Imm(asm.R5, 0), asm.FnSkbStoreBytes.Call(),
		}
	}
	// The classic loads take the packet from R6 and answer in host order.
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadAbs(etherType, asm.Half), asm.JNE.Imm32(asm.R0, 0x0800, "next"),
		asm.LoadAbs(ipv4Destination, asm.Word), asm.JNE.Imm32(asm.R0, addr4, "next"),
	}
	ins = append(ins, store(etherDestination, to)...)
	ins = append(ins, store(etherSource, from)...)
	ins = append(ins,
		asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), by.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("next"), asm.Return())
	return testutil.Load(t, "from_netdev", ins)
}

// route is a way to a pod from elsewhere: the namespace that sends, and the
// device of the node where its packets come in.
type route struct {
	name string
	from *testutil.NetNS
	in   hostif.Interface
}

// routes makes a network outside the node, and takes another pod of the node;
// packets of both are forwarded by the node to its pods.
func (n *node) routes(t *testing.T, other *pod) []route {
	t.Helper()
	world := testutil.NewNetNS(t)
	_, near := testutil.VethPair(t,
		testutil.End{NetNS: world, Name: "world0", CIDRs: []string{"10.99.0.2/24"}},
		testutil.End{NetNS: n.NetNS, Name: "uplink", CIDRs: []string{"10.99.0.1/24"}})
	world.Run(t, "ip", "route", "add", "default", "via", "10.99.0.1")
	n.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	other.ns.Run(t, "ip", "route", "replace", "default", "via", other.gateway)
	return []route{{"from the uplink", world, near}, {"from another pod", other.ns, other.host}}
}

// redirectOn puts the redirect on the ingress hook of a device of the node.
func redirectOn(t *testing.T, n *node, dev hostif.Interface, prog *ebpf.Program) (remove func()) {
	t.Helper()
	pin := filepath.Join(testutil.BPFFS(t), "from_netdev")
	must.OK(t, prog.Pin(pin))
	// The device of a pod may have a clsact qdisc already.
	_ = n.Command(t, "tc", "qdisc", "add", "dev", dev.Name, "clsact").Run()
	n.Run(t, "tc", "filter", "add", "dev", dev.Name, "ingress", "pref", "7", "bpf", "da", "pinned", pin)
	return func() {
		n.Run(t, "tc", "filter", "del", "dev", dev.Name, "ingress", "pref", "7")
		must.OK(t, prog.Unpin())
	}
}

// sentBy is how many packets the host's end of the pair sent to the pod.
func (p *pod) sentBy(t *testing.T) int {
	t.Helper()
	var links []struct {
		Stats64 struct {
			TX struct{ Packets int }
		}
	}
	out := p.node.Run(t, "ip", "-j", "-s", "link", "show", "dev", p.host.Name)
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		t.Fatalf("ip link: %v in %s", err, out)
	}
	return links[0].Stats64.TX.Packets
}

// Whoever may, in the pod, takes the ifb away and gives its name to another device:
// ingress is policed, and the limit can be taken off.
func TestPrivilegedAnotherDeviceHasTheNameOfTheIFB(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "clsact")
	for _, place := range []string{"ifb", "prefer-ifb"} {
		t.Run(place, func(t *testing.T) {
			p := newNode(t).newPod(t)
			c := p.conf(both(conf{"ingressPlace": place}))
			p.must(t, "ADD", c)
			shaped := p.state(t)
			ifb := hostif.IFBName(p.dev.Index)
			p.ns.Run(t, "ip", "link", "del", ifb)
			p.ns.Run(t, "ip", "link", "add", ifb, "type", "veth", "peer", "name", "other")
			p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "clsact")
			p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
			a := p.must(t, "ADD", c)
			if got := p.state(t); !slices.Contains(got, "pod clsact ingress pw_police") || !slices.Contains(got, "pod qdisc tbf") {
				t.Errorf("after ADD there is %q, want a policer for ingress and a queue for egress", got)
			}
			a.tells(t, "a device of this name is not an ifb")
			p.must(t, "CHECK", c)
			p.must(t, "ADD", p.conf(nil))
			left := slices.DeleteFunc(p.state(t), func(what string) bool { return strings.HasPrefix(what, "ifb ") })
			if len(left) > 0 {
				t.Errorf("without limits there is %q, want the pod's own device alone", left)
			}
			p.must(t, "ADD", c)
			p.ns.Run(t, "ip", "link", "del", ifb)
			p.must(t, "ADD", c)
			wantState(t, p, "the name is free again", shaped)
			p.must(t, "DEL", p.conf(nil))
		})
	}
}

// Packets that are handed to the pod's end of the pair go past the host's: a
// cap there does not hold, and one in the pod does.
func TestPrivilegedRedirectPeer(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "clsact")
	for _, m := range []struct {
		name  string
		with  conf
		holds bool
	}{
		{"no limit", nil, false},
		{"host queue", conf{"ingressPlace": "host"}, false},
		{"tcx-hostside", conf{"mode": "tcx-hostside"}, false},
		{"clsact-hostside", conf{"mode": "clsact-hostside"}, false},
		{"ifb", conf{"ingressPlace": "ifb"}, true},
		{"tcx-podside", conf{"mode": "tcx-podside"}, true},
		{"clsact-podside", conf{"mode": "clsact-podside"}, true},
	} {
		t.Run(m.name, func(t *testing.T) {
			if strings.HasPrefix(m.name, "tcx") {
				testutil.RequireQdisc(t, "tcx")
			}
			n := newNode(t)
			pastTheHostSide(t, n.newPod(t), n.newPod(t), m.with, m.holds)
		})
	}
}

// pastTheHostSide shapes ingress of p, unless with is nil, and sends to it by
// every route, with and without the redirect.
func pastTheHostSide(t *testing.T, p, other *pod, with conf, holds bool) {
	t.Helper()
	p.ns.Run(t, "ip", "route", "replace", "default", "via", p.gateway)
	prog := peerRedirect(t, p)
	c := p.conf(with)
	if with != nil {
		c["ingressRate"] = slow
		p.must(t, "ADD", c)
		defer p.must(t, "DEL", c)
		defer p.must(t, "CHECK", c)
	}
	for _, r := range p.node.routes(t, other) {
		if got := offer(t, r.from, p.ns, p.addr); with != nil {
			got.wantCapped(t, "forwarded "+r.name)
		} else {
			got.wantPast(t, "forwarded "+r.name)
		}
		remove := redirectOn(t, p.node, r.in, prog)
		before := p.sentBy(t)
		got := offer(t, r.from, p.ns, p.addr)
		must.AtMost(t, "redirected "+r.name+": packets that went by way of the host side", offered/20, p.sentBy(t)-before)
		if holds {
			got.wantCapped(t, "redirected "+r.name)
		} else {
			got.wantPast(t, "redirected "+r.name)
		}
		remove()
	}
}

// What offer sends: eight tenths of a megabyte at once, in as many packets as
// the backlog of a processor holds (netdev_max_backlog is 1000).
const (
	offered        = 800
	offeredPayload = 1000
	// offeredFrame is one of them on the wire: Ethernet, IPv4 and UDP headers.
	offeredFrame = 14 + 20 + 8 + offeredPayload
)

// slow is the cap of these tests: 1 Mbit/s, which passes so little of what is
// offered that no machine is too slow to tell it from no cap at all.
const (
	slow            = "1M"
	slowBytesPerSec = 1_000_000 / 8
	// slowAtOnce is more than what may come back to back after idle: the credit
	// of a policer, 250 ms of the cap, its horizon of 50 ms, and some packets.
	slowAtOnce = slowBytesPerSec*300/1000 + 4*offeredFrame
)

// arrival is what came of what was offered.
type arrival struct {
	packets int
	// within is the time from the first packet sent to the last received.
	within time.Duration
}

// cap is what the slow cap lets through in that time.
func (a arrival) cap() int { return int(a.within.Seconds()*slowBytesPerSec) + slowAtOnce }

func (a arrival) bytes() int { return a.packets * offeredFrame }

func (a arrival) wantCapped(t *testing.T, what string) {
	t.Helper()
	if a.bytes() > a.cap() || a.packets == 0 {
		t.Errorf("%s: %d of %d packets in %v, %d bytes, want 1 to %d bytes", what, a.packets, offered, a.within, a.bytes(), a.cap())
	}
}

func (a arrival) wantPast(t *testing.T, what string) {
	t.Helper()
	if a.bytes() <= 2*a.cap() {
		t.Errorf("%s: %d of %d packets in %v, %d bytes, want more than twice the cap's %d", what, a.packets, offered, a.within, a.bytes(), a.cap())
	}
}

// offer sends to an address in a namespace, all packets of one flow and as fast
// as they go, and waits until nothing arrives any more.
func offer(t *testing.T, from, to *testutil.NetNS, addr string) arrival {
	t.Helper()
	return offering(t, from, to, addr)()
}

// offering is [offer] that begins when what it returns is called, which may be beside the test.
func offering(t *testing.T, from, to *testutil.NetNS, addr string) func() arrival {
	t.Helper()
	receiver := to.ListenUDP(t, addr)
	sender := from.DialUDP(t, receiver.LocalAddr().String())
	return func() arrival {
		start := time.Now()
		go send(sender, start.Add(time.Second/2))
		return receive(receiver, start)
	}
}

// send gives up at the deadline: a queue in its own namespace makes it wait.
func send(conn net.Conn, deadline time.Time) {
	_ = conn.SetWriteDeadline(deadline)
	packet := make([]byte, offeredPayload)
	for range offered {
		// A packet that a queue or a policer refused is a drop.
		_, _ = conn.Write(packet)
	}
}

func receive(conn net.PacketConn, start time.Time) arrival {
	var a arrival
	buf := make([]byte, 2*offeredPayload)
	end := start.Add(10 * time.Second)
	// At the cap a packet takes 8 ms; the first is sent when there is a processor for it.
	for quiet := 5 * time.Second; time.Now().Before(end); quiet = 200 * time.Millisecond {
		err := conn.SetReadDeadline(time.Now().Add(quiet))
		if err == nil {
			_, _, err = conn.ReadFrom(buf)
		}
		if err != nil {
			break
		}
		a.packets++
		a.within = time.Since(start)
	}
	return a
}

// The redirect to the ifb runs last: a TCX program and filters at any
// preference that come after it see every packet, and what one of them drops
// does not arrive.
func TestPrivilegedLaterProgramsComeBeforeTheRedirect(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	const packets = 20
	prefs := []string{"1", "50000", "65534"}
	if testutil.HaveTCX() {
		prefs = append(prefs, "")
	}
	for _, pref := range prefs {
		t.Run("pref "+pref, func(t *testing.T) {
			p := newNode(t).newPod(t)
			c := p.conf(inIFB(nil))
			p.must(t, "ADD", c)
			f := p.newFlow(t, true)
			sees := newCounter(t, "foreign_count", tcxNext)
			remove := sees.onPod(t, p, pref)
			for range packets {
				f.send(t, "passed on")
			}
			for range packets {
				must.Be(t, "received", "passed on", f.receive(t))
			}
			must.Be(t, "packets that the later program saw", packets, sees.packets(t))
			p.must(t, "CHECK", c)
			remove()
			drops := newCounter(t, "foreign_drop", tcActShot)
			remove = drops.onPod(t, p, pref)
			for range packets {
				f.send(t, "dropped")
			}
			drops.wait(t, packets, "dropped by the later program")
			must.Be(t, "packets to drop that the later program saw", packets, drops.packets(t))
			remove()
			f.send(t, "allowed")
			must.Be(t, "what the later program let pass", "allowed", f.receive(t))
		})
	}
}

// A netfilter ingress chain that comes behind the redirect is blind, which is
// why podweir leaves at once: whoever waits for such a chain is told, CHECK and
// status name it, and a repair or the next ADD moves to policing, whatever mode
// was requested. Then what the chain drops does not arrive.
func TestPrivilegedChainBehindTheRedirect(t *testing.T) {
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
			p.addChain(t)
			must.OK(t, <-appeared)
			f := p.newFlow(t, true)
			f.send(t, "hidden")
			if got := f.receive(t); got != "hidden" || p.dropped(t) != 0 {
				t.Errorf("received %q, and the chain is not blind: this test proves nothing", got)
			}
			const chain = "netfilter ingress chain on eth0"
			wantCode(t, "CHECK", p.call(t, "CHECK", c).err, 101, chain)
			must.Have(t, "the drift of status", strings.Join(p.status(t).Drift, "\n"), chain)
			p.repair(t)
			for range 5 {
				f.send(t, "forbidden")
			}
			p.chainDrops(t, 5)
			p.must(t, "CHECK", c)
			a := p.must(t, "ADD", c)
			s := p.status(t)
			for _, d := range s.Directions {
				if d.Direction.Is == terms.Ingress && (d.Queue.Is != terms.QueueNone || d.CapHolds || !strings.Contains(strings.Join(d.Notes, "\n"), chain)) {
					t.Errorf("status tells %+v, want policing because of the chain", d)
				}
			}
			if len(s.Drift) != 0 || len(s.Directions) != 2 || !strings.Contains(a.log, chain) {
				t.Errorf("status tells drift %q and %d directions, ADD logs %s", s.Drift, len(s.Directions), a.log)
			}
			p.deleteChain(t)
			f.send(t, "allowed")
			must.Be(t, "what the chain let pass", "allowed", f.receive(t))
			offer(t, p.node.NetNS, p.ns, p.addr).wantCapped(t, "policing")
			wantState(t, p, "repaired", join(treesHere(t).bands("pod"), []string{"pod clsact ingress pw_police"}))
			// The queue was always wanted, and is available again.
			wantCode(t, "CHECK without the chain", p.call(t, "CHECK", c).err, 101, "is available again")
			p.must(t, "ADD CHECK", c)
			if now := p.state(t); !slices.Contains(now, "pod clsact ingress pw_redirect") && !slices.Contains(now, "pod clsact ingress mirred") {
				t.Errorf("after ADD there is %q, want the redirect", now)
			}
			p.goes(t, c)
		})
	}
}

// onNode runs a function on the node's state, as `podweir` does.
func (p *pod) onNode(t *testing.T, f func(*engine.Node) error) {
	t.Helper()
	must.OK(t, p.node.Do(func() error {
		node, err := engine.Open(p.node.paths)
		if err != nil {
			return err
		}
		defer node.Close()
		return f(node)
	}))
}

func (p *pod) status(t *testing.T) status.Attachment {
	t.Helper()
	var rep *status.Report
	p.onNode(t, func(n *engine.Node) (err error) { rep, err = status.Collect(n); return err })
	if len(rep.Attachments) != 1 || rep.Attachments[0].Error != "" {
		t.Fatalf("status = %+v, want one attachment", rep)
	}
	return rep.Attachments[0]
}

func (p *pod) repair(t *testing.T) {
	t.Helper()
	p.onNode(t, func(n *engine.Node) error {
		_, err := n.Repair(t.Context(), attach.ID{Network: "net", ContainerID: p.container, IfName: "eth0"})
		return err
	})
}
