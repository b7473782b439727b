// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// newNetkitPod is newPod with a netkit pair.
func (n *node) newNetkitPod(t *testing.T, l3 bool) *pod {
	t.Helper()
	return n.newPodWith(t, func(tb testing.TB, pod, host testutil.End) (hostif.Interface, hostif.Interface) {
		tb.Helper()
		return testutil.NetkitPair(tb, pod, host, l3)
	})
}

// netkitModes are the modes of netkit, and whether each is the one without
// link layer addresses. It skips the test where the kernel has no netkit.
func netkitModes(t *testing.T) map[string]bool {
	t.Helper()
	testutil.NetkitPair(t, testutil.End{NetNS: testutil.NewNetNS(t), Name: "a"},
		testutil.End{NetNS: testutil.NewNetNS(t), Name: "b"}, true)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "ifb", "clsact")
	return map[string]bool{"L2": false, "L3": true}
}

// Left to itself podweir queues egress at the pod's end and ingress on the ifb;
// both hold the cap for a TCP stream and say whose stream it was, which they
// know only if they read the packets right. DEL leaves the pair as ADD
// found it.
func TestPrivilegedNetkit(t *testing.T) {
	for name, l3 := range netkitModes(t) {
		t.Run(name, func(t *testing.T) {
			n, k := newNode(t), treesHere(t)
			// Packets may go past the host side.
			want := join(k.bands("pod"), k.bands("ifb"), []string{"ifb exists", "pod clsact ingress pw_redirect", noCeiling})
			p, control := n.newNetkitPod(t, l3), n.newNetkitPod(t, l3)
			before := p.raw(t)
			c := p.conf(conf{"egressRate": "5M", "ingressRate": "5M"})
			p.must(t, "ADD", c)
			wantState(t, p, "ADD", want)
			p.must(t, "CHECK", c)
			ids := n.programs(t)
			p.must(t, "ADD", c)
			wantState(t, p, "ADD twice", want)
			must.Match(t, "a second ADD: programs", ids, n.programs(t))
			for _, d := range terms.Directions {
				const bytesPerSec = 5_000_000 / 8
				got, port := stream(t, p, d)
				wantHeavy(t, p, d, port)
				// What may come back to back, with room.
				most := func(s streamed) int { return s.bytesIn(bytesPerSec) + 100_000 }
				free, _ := stream(t, control, d)
				// Others may have had the processor meanwhile.
				for range 3 {
					if free.bytes <= most(free) {
						free, _ = stream(t, control, d)
					}
				}
				t.Logf("%v at 5 Mbit/s: %d bytes in %v; without limits %d in %v", d, got.bytes, got.within, free.bytes, free.within)
				if got.bytes > most(got) || free.bytes <= most(free) {
					t.Errorf("%v: %d bytes, without limits %d, want at most %d, and more than %d", d, got.bytes, free.bytes,
						most(got), most(free))
				}
			}
			p.must(t, "CHECK", c)
			p.goes(t, c)
			must.Match(t, "what DEL leaves", before, p.raw(t))
		})
	}
}

// wantHeavy fails the test unless the stream to this port is listed as heavy.
func wantHeavy(t *testing.T, p *pod, d terms.Direction, port uint16) {
	t.Helper()
	flows := must.Get(p.node.slab(t).HeavyFlows(p.dir(), d))(t)
	to := p.gateway
	if d == terms.Ingress {
		to = p.addr
	}
	for _, f := range flows {
		if f.Dest.Addr().Unmap().String() == to && f.Dest.Port() == port {
			return
		}
	}
	t.Errorf("%v: the heavy flows are %+v, want the stream to port %d", d, flows, port)
}

// streamed is what came of a TCP stream.
type streamed struct {
	bytes  int
	within time.Duration
}

// bytesIn is what a rate in bytes per second lets through in the same time.
func (s streamed) bytesIn(rate int) int { return int(s.within.Seconds() * float64(rate)) }

// streamBytes is what has to come through: half a second of the cap.
const streamBytes = 300_000

// stream sends as much as it can by TCP until the other end has read for a
// second, and streamBytes: on a processor that is emulated, and that others use,
// that may take longer. port is where it sent to.
func stream(t *testing.T, p *pod, d terms.Direction) (s streamed, port uint16) {
	t.Helper()
	from, to, addr := p.ns, p.node.NetNS, p.gateway
	if d == terms.Ingress {
		from, to, addr = p.node.NetNS, p.ns, p.addr
	}
	var l net.Listener
	must.OK(t, to.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", addr+":0")
		return err
	}))
	defer func() { _ = l.Close() }()
	var out net.Conn
	must.OK(t, from.Do(func() (err error) {
		out, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp4", l.Addr().String())
		return err
	}))
	defer func() { _ = out.Close() }()
	in := must.Get(l.Accept())(t)
	defer func() { _ = in.Close() }()
	start := time.Now()
	end := start.Add(20 * time.Second)
	must.OK(t, in.SetReadDeadline(end))
	go func() {
		_ = out.SetWriteDeadline(end)
		for b := make([]byte, 64<<10); ; {
			if _, err := out.Write(b); err != nil {
				return
			}
		}
	}()
	for b := make([]byte, 64<<10); s.bytes < streamBytes || s.within < time.Second; {
		n, err := in.Read(b)
		if err != nil {
			t.Fatalf("%v: %d bytes came, then %v", d, s.bytes, err)
		}
		s.bytes, s.within = s.bytes+n, time.Since(start)
	}
	return s, uint16(l.Addr().(*net.TCPAddr).Port)
}

// Every mode works on a netkit pair, both ways, as far as packets come by. In
// L3 mode only the packets differ, so that one of each program is enough.
func TestPrivilegedNetkitModes(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	for name, l3 := range netkitModes(t) {
		t.Run(name, func(t *testing.T) {
			all := []conf{
				nil,
				{"mode": "auto"},
				{"mode": "tcx-podside"},
				{"mode": "tcx-hostside"},
				{"mode": "clsact-podside"},
				{"mode": "clsact-hostside"},
				{"mode": "auto", "queue": "none"},
				{"mode": "qdisc", "ingressPlace": "host"},
			}
			if l3 {
				all = all[:4]
			}
			for _, with := range all {
				p := newNode(t).newNetkitPod(t, l3)
				before := p.raw(t)
				c := p.conf(with)
				if with != nil {
					c["ingressRate"], c["egressRate"] = slow, slow
					p.must(t, "ADD CHECK", c)
				}
				in, out := offer(t, p.node.NetNS, p.ns, p.addr), offer(t, p.ns, p.node.NetNS, p.gateway)
				if with == nil {
					in.wantPast(t, "ingress without a limit")
					out.wantPast(t, "egress without a limit")
					continue
				}
				in.wantCapped(t, fmt.Sprintf("ingress %v", with))
				out.wantCapped(t, fmt.Sprintf("egress %v", with))
				p.must(t, "DEL", c)
				p.afterIFB(t)
				must.Match(t, fmt.Sprintf("%v: what DEL leaves", with), before, p.raw(t))
			}
		})
	}
}

// A netkit pair has its own hooks, where the dataplane that made it has its
// policy: what drops there drops whether it came before podweir or after. The hooks
// are Cilium's (github.com/cilium/cilium v1.20.2; TestCitedLines in e2e/cilium
// looks them up):
//
//	pkg/datapath/loader/netkit.go:30 AttachNetkitPeer: for what the pod sends
//	pkg/datapath/loader/netkit.go:35 AttachNetkitPrimary: for what the pod receives
func TestPrivilegedNetkitHooksDecide(t *testing.T) {
	for name, l3 := range netkitModes(t) {
		t.Run(name, func(t *testing.T) {
			for _, with := range []conf{both(nil), both(conf{"mode": "tcx-podside"}), both(conf{"mode": "clsact-hostside"})} {
				n, drops := newNode(t), newCounter(t, "foreign_drop", tcActShot)
				after, before := n.newNetkitPod(t, l3), n.newNetkitPod(t, l3)
				after.must(t, "ADD", after.conf(with))
				for _, toPod := range []bool{true, false} {
					what := fmt.Sprintf("%v, netkit's hook to the pod %v,", with["mode"], toPod)
					decides(t, after.netkitGate(drops, toPod), after, what+" after podweir", func() {})
					decides(t, before.netkitGate(drops, toPod), before, what+" before podweir", func() {
						before.must(t, "ADD", before.conf(with))
					})
					before.must(t, "DEL", before.conf(with))
					before.afterIFB(t)
				}
			}
		})
	}
}

func (p *pod) netkitGate(drops *counter, toPod bool) gate {
	at := ebpf.AttachNetkitPeer
	if toPod {
		at = ebpf.AttachNetkitPrimary
	}
	return gate{toPod: toPod, drops: drops, close: func(t *testing.T) func() {
		t.Helper()
		return p.onNetkit(t, drops.prog, at)
	}}
}

// onNetkit hangs a program on a hook of the pair's own.
func (p *pod) onNetkit(t *testing.T, prog *ebpf.Program, at ebpf.AttachType) (remove func()) {
	t.Helper()
	var l link.Link
	must.OK(t, p.node.Do(func() (err error) {
		l, err = link.AttachNetkit(link.NetkitOptions{Interface: p.host.Index, Program: prog, Attach: at})
		return err
	}))
	return func() {
		must.OK(t, l.Close())
	}
}

// What a pod sends may leave the pair inside its transmit function, before the
// host's end: the queue that podweir chooses is before that.
//
//	bpf/bpf_lxc.c:1347 fib_redirect_v4: Cilium, with BPF host routing
func TestPrivilegedNetkitSendsPastTheHost(t *testing.T) {
	for name, l3 := range netkitModes(t) {
		t.Run(name, func(t *testing.T) {
			for _, m := range []struct {
				with  conf
				holds bool
			}{
				{conf{"egressRate": slow}, true},
				{conf{"egressRate": slow, "egressMode": "clsact-hostside"}, false},
			} {
				n := newNode(t)
				p := n.newNetkitPod(t, l3)
				r := n.routes(t, p)[0]
				p.must(t, "ADD", p.conf(m.with))
				const world = "10.99.0.2"
				offer(t, p.ns, r.from, world).wantCapped(t, fmt.Sprintf("%v, forwarded", m.with))
				far := r.from.Interface(t, "world0").HardwareAddr
				remove := p.onNetkit(t, redirectProgram(t, world, far, r.in.HardwareAddr, r.in.Index, asm.FnRedirect), ebpf.AttachNetkitPeer)
				if got := offer(t, p.ns, r.from, world); m.holds {
					got.wantCapped(t, fmt.Sprintf("%v, redirected", m.with))
				} else {
					got.wantPast(t, fmt.Sprintf("%v, redirected", m.with))
				}
				remove()
				p.must(t, "DEL", p.conf(m.with))
			}
		})
	}
}

// Dataplanes hand packets to the pod's end of a netkit pair, Cilium those that come
// in by a device of the node. What podweir chooses of itself holds then, and what
// holds on the host's side only is said not to.
//
//	bpf/lib/local_delivery.h:87 ctx_get_ingress_ifindex: such packets
//	bpf/lib/local_delivery.h:104 ctx_redirect_peer: go past the host's end
func TestPrivilegedNetkitRedirectPeer(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	for name, l3 := range netkitModes(t) {
		t.Run(name, func(t *testing.T) {
			all := []struct {
				with  conf
				holds bool
			}{
				{conf{"mode": "auto"}, true},
				{conf{"ingressPlace": "host"}, false},
				{conf{"mode": "tcx-podside"}, true},
				{conf{"mode": "clsact-podside"}, true},
				{nil, false},
			}
			if l3 {
				all = all[:2]
			}
			for _, m := range all {
				t.Run(fmt.Sprint(m.with), func(t *testing.T) {
					n := newNode(t)
					pastTheHostSide(t, n.newNetkitPod(t, l3), n.newNetkitPod(t, l3), m.with, m.holds)
				})
			}
		})
	}
}
