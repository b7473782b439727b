// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A sender whose packets are taken for lost has nothing under way, though none is
// acknowledged: what it sends again after a timeout is kept where a packet of an idle
// sender is.
func TestPrivilegedSenderAfterATimeout(t *testing.T) {
	d := bpftest.Load(t)
	for name, tt := range map[string]struct {
		sender *bpftest.Sender
		want   image.Disposition
	}{
		"nothing sent":                 {&bpftest.Sender{}, image.Paced},
		"all lost":                     {&bpftest.Sender{Out: 10, Lost: 10}, image.Paced},
		"all lost or received":         {&bpftest.Sender{Out: 10, Sacked: 3, Lost: 7}, image.Paced},
		"one sent":                     {&bpftest.Sender{Out: 1}, image.DropEarly},
		"one on the way":               {&bpftest.Sender{Out: 10, Sacked: 3, Lost: 6}, image.DropEarly},
		"all lost, and one sent again": {&bpftest.Sender{Out: 10, Lost: 10, Retransmitted: 1}, image.DropEarly},
		"not of this machine":          {nil, image.DropEarly},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.For(t)
			m := newDirection(10e6, terms.PolicyStrict)
			reset(d, m)
			now := uint64(1e12)
			next := func(s *bpftest.Sender) image.Disposition {
				now += 1e5
				out, _ := send(t, d, m, &step{
					program: "pw_band", packet: bpftest.Packet{Data: tcpPacket(0), Sender: s},
					clock: bpftest.Clock{ExactNS: now, CoarseNS: now}, random: 0xffff0000, // lost as soon as one may be
				})
				return out.was
			}
			for i := 0; next(&bpftest.Sender{Out: 1}) != image.DropEarly; i++ {
				if i > 1000 {
					t.Fatal("no packet is lost, so nothing is tested")
				}
			}
			must.Be(t, "the next packet", tt.want, next(tt.sender))
		})
	}
}

// What a real socket says: its first packet finds nothing sent, those behind it find some
// under way, and what is sent again after a timeout finds nothing under way.
func TestPrivilegedSenderOfTheKernel(t *testing.T) {
	d := bpftest.Load(t)
	from, to := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: from, Name: "a", CIDRs: []string{"192.0.2.1/24"}}, testutil.End{NetNS: to, Name: "b", CIDRs: []string{"192.0.2.2/24"}})
	probe(t, from, "a", d.Program("pw_sender_probe").FD())
	var listener net.Listener
	var err error
	must.OK(t, to.Do(func() error { listener, err = net.Listen("tcp4", "192.0.2.2:7"); return err }))
	defer func() { _ = listener.Close() }()
	var conn net.Conn
	must.OK(t, from.Do(func() error { conn, err = net.Dial("tcp4", "192.0.2.2:7"); return err }))
	defer func() { _ = conn.Close() }()
	before := d.Senders()
	to.Run(t, "ip", "addr", "del", "192.0.2.2/24", "dev", "b") // nothing arrives from now on
	must.OK(t, must.Err(conn.Write(make([]byte, 20_000))))
	testutil.Eventually(t, 10*time.Second, "a packet is sent again while nothing is under way", func() bool {
		return d.Senders()[1] > before[1]
	})
	if seen := d.Senders(); seen[0] == before[0] || seen[2] == before[2] {
		t.Errorf("before the write %v packets were sent by who had sent nothing, had nothing and had something under way, and after it %v; want more of each", before, seen)
	}
}

// probe makes a program the filter of what a device sends.
func probe(t *testing.T, ns *testutil.NetNS, device string, program int) {
	t.Helper()
	h := must.Get(netlink.NewHandleAt(netns.NsHandle(ns.FD())))(t)
	defer h.Close()
	index := ns.Interface(t, device).Index
	clsact := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	must.OK(t, h.QdiscAdd(clsact))
	must.OK(t, h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          program, Name: "pw_sender_probe", DirectAction: true,
	}))
}

// A limit that is observed only counts exactly the packets that policing would drop,
// and lets each of them pass as it is: the answer is next, and no packet is marked.
func TestPrivilegedObserve(t *testing.T) {
	const bits, packetBytes = 10e6, 700
	one, other := bpftest.Load(t), bpftest.Load(t)
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			d, policing := one.For(t), other.For(t)
			observed, enforced := newDirection(bits, policy), newDirection(bits, policy)
			for _, m := range []*bpftest.Direction{observed, enforced} {
				m.Config.TotalBurst, m.Config.TotalHorizon = packetsOf(10, packetBytes, bits), packetsOf(40, packetBytes, bits)
				setFair(&m.Config)
			}
			observed.Config.Observe = 1
			reset(d, observed)
			reset(policing, enforced)
			random := rand.New(rand.NewPCG(7, uint64(policy)))
			now := random.Uint64() >> 1
			seen := map[image.Disposition]int{}
			for range 600 {
				now += uint64(random.Float64() * 12 * packetBytes * 8e9 / bits)
				s := &step{
					program: "pw_police", packet: randomPacket(random), random: random.Uint32(),
					clock: bpftest.Clock{ExactNS: now, CoarseNS: now - uint64(random.Int64N(4e6))},
				}
				want, _ := send(t, policing, enforced, s)
				got, ok := send(t, d, observed, s) // which looks at answer and packet, too
				if !ok {
					t.Fatalf("the kernel does not build a packet of %d bytes", len(s.packet.Data))
				}
				seen[got.was]++
				if (got.was == image.WouldDrop) != want.dropped() {
					t.Fatalf("observed as %v, and policing makes it %v", got.was, want.was)
				}
				if got.dropped() || got.was == image.Marked {
					t.Fatalf("an observed packet was %v", got.was)
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			if seen[image.WouldDrop] < 20 || seen[image.WouldWait] < 20 {
				t.Errorf("the run saw only %v", seen)
			}
		})
	}
}

// packetsOf is how long so many packets take at a rate.
func packetsOf(n, size, bits float64) uint64 {
	return uint64(n * size * 8e9 * 64 / bits)
}
