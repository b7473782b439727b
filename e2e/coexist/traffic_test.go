// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// The UDP ports that the neighbours' policies allow and deny.
const (
	allowedPort = 7000
	deniedPort  = 7001
)

const (
	// burstPackets of burstBytes are 4.2 MB: at 20 Mbit/s a queue or the credit
	// of a policer takes some 600 of them at once, and 50 more pass in the time
	// that it takes to send them.
	burstPackets = 3000
	burstBytes   = 1400
	// shapedShare is the share of an unshaped pod's burst that a shaped pod's
	// may reach: far above what is let through, far below 1.
	shapedShare = 0.6
	// quiet is when a burst is taken for delivered. At 20 Mbit/s a packet
	// comes every 0.6 ms.
	quiet = 100 * time.Millisecond
	// patience is how long a packet may take.
	patience = 5 * time.Second
)

// socket is a UDP socket in one of the namespaces.
type socket int

func newSocket(t *testing.T, ns *testutil.NetNS, addr string, port int) socket {
	t.Helper()
	fd := -1
	err := ns.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(addr).As4()}),
		)
	})
	if fd >= 0 {
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	must.OK(t, err)
	return socket(fd)
}

// send offers a datagram; one that the sender's own queue refuses is dropped,
// like one that is dropped later.
func (s socket) send(to string, port int, payload []byte) error {
	err := unix.Sendto(int(s), payload, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Port: port, Addr: netip.MustParseAddr(to).As4()})
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// drain returns how many datagrams arrived, and waits until none came for so
// long.
func (s socket) drain(wait time.Duration) int {
	buf := make([]byte, 2*burstBytes)
	for n := 0; ; {
		_, _, err := unix.Recvfrom(int(s), buf, unix.MSG_DONTWAIT)
		switch {
		case err == nil:
			n++
		case !s.readable(wait):
			return n
		}
	}
}

func (s socket) readable(wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(s), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(wait.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// direction is the traffic of a pod in one direction.
type direction struct {
	to              string
	sender          socket
	allowed, denied socket
	// unshaped is what a burst got through before podweir came.
	unshaped int
	// leaked counts denied packets that arrived while they were to be dropped.
	leaked int
}

// traffic are both directions of a pod.
type traffic struct {
	egress, ingress *direction
}

func newTraffic(t *testing.T, p *pod) *traffic {
	t.Helper()
	at := func(ns *testutil.NetNS, addr string) (allowed, denied, sender socket) {
		return newSocket(t, ns, addr, allowedPort), newSocket(t, ns, addr, deniedPort), newSocket(t, ns, addr, 0)
	}
	out := &traffic{egress: &direction{to: clientAddr}, ingress: &direction{to: p.addr}}
	out.egress.allowed, out.egress.denied, out.ingress.sender = at(p.rig.client, clientAddr)
	out.ingress.allowed, out.ingress.denied, out.egress.sender = at(p.ns, p.addr)
	for _, d := range out.both() {
		d.probe(t)
		if d.leaked == 0 {
			t.Fatal("denied packets do not arrive without a policy: nothing would be proven")
		}
		if testutil.Emulated() {
			continue // what a burst gets through is not judged there
		}
		if d.unshaped = d.bestBurst(t, burstPackets*7/10); d.unshaped < burstPackets*7/10 {
			t.Fatalf("%d of %d packets arrive at a pod without limits", d.unshaped, burstPackets)
		}
	}
	for _, d := range out.both() {
		// What came late is behind the bursts' packets, not the policy's.
		d.denied.drain(0)
		d.leaked = 0
	}
	return out
}

func (tr *traffic) both() []*direction { return []*direction{tr.egress, tr.ingress} }

// probe sends packets of either kind. It returns whether those that are
// allowed arrive; those that are denied count as leaked if they do.
func (d *direction) probe(t *testing.T) (passes bool) {
	t.Helper()
	d.allowed.drain(0)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for range 5 {
			d.must(t, deniedPort, []byte("denied"))
		}
		d.must(t, allowedPort, []byte("allowed"))
		// A burst may still be waiting in front of it.
		if d.allowed.readable(50 * time.Millisecond) {
			d.allowed.drain(0)
			passes = true
			break
		}
	}
	d.leaked += d.denied.drain(10 * time.Millisecond)
	return passes
}

func (d *direction) must(t *testing.T, port int, payload []byte) {
	t.Helper()
	must.OK(t, d.sender.send(d.to, port, payload))
}

// burst sends at once what takes 1.7 s at the cap, and returns how much of it
// arrived, and within which time.
func (d *direction) burst(t *testing.T) (packets int, took time.Duration) {
	t.Helper()
	d.allowed.drain(0)
	payload := make([]byte, burstBytes)
	start := time.Now()
	for range burstPackets {
		d.must(t, allowedPort, payload)
	}
	packets = d.allowed.drain(quiet)
	return packets, time.Since(start)
}

// bestBurst sends bursts until so much of one arrives, at most ten, and
// returns the most. A limit holds back each of them; a processor that stands
// still overflows the kernel's backlog of 1,000 packets (netdev_max_backlog) now
// and then.
func (d *direction) bestBurst(t *testing.T, enough int) int {
	t.Helper()
	best := 0
	for range 10 {
		n, _ := d.burst(t)
		t.Logf("burst to %s: %d of %d packets arrived", d.to, n, burstPackets)
		if best = max(best, n); best >= enough {
			break
		}
	}
	return best
}

// mostSlow is how many bursts may be too slow to decide: on a machine that does so much
// else, nothing is measured.
const mostSlow = 20

// shaped says whether every burst of three is held back. A busy machine may take so
// long to send one that a limit lets it pass, too: such a burst decides nothing.
func (d *direction) shaped(t *testing.T) bool {
	t.Helper()
	limit := int(shapedShare * float64(d.unshaped))
	for fast, slow := 0, 0; fast < 3; {
		n, took := d.burst(t)
		t.Logf("burst to %s: %d of %d packets arrived within %v", d.to, n, burstPackets, took)
		switch {
		case n < limit:
			fast++
		case n > passAtCap(took):
			return false
		default:
			if slow++; slow > mostSlow {
				t.Fatalf("%d bursts to %s took so long that a limit would let them pass", slow, d.to)
			}
		}
	}
	return true
}

// passAtCap is how many packets of a burst pass within a time where there is a limit:
// what a queue or a credit takes at once, and the cap.
func passAtCap(took time.Duration) int {
	const atOnce, bitsPerSec = 650, 20e6
	return atOnce + int(took.Seconds()*bitsPerSec/8/burstBytes)
}

// watch sends denied packets in both directions, one each millisecond, until
// end is called, so that what others do meanwhile is seen to let none through.
func (tr *traffic) watch(t *testing.T) (end func()) {
	t.Helper()
	for _, d := range tr.both() {
		d.denied.drain(0)
	}
	ctx, stop := context.WithCancel(t.Context())
	var sender sync.WaitGroup
	sender.Go(func() {
		for range time.Tick(time.Millisecond) {
			if ctx.Err() != nil {
				return
			}
			for _, d := range tr.both() {
				_ = d.sender.send(d.to, deniedPort, []byte("denied"))
			}
		}
	})
	return func() {
		stop()
		sender.Wait()
		for _, d := range tr.both() {
			d.leaked += d.denied.drain(10 * time.Millisecond)
		}
	}
}

// verdicts says what became of the packets of both kinds, and counts again.
func (d *direction) verdicts(t *testing.T) string {
	t.Helper()
	text := "allowed drops"
	if d.probe(t) {
		text = "allowed passes"
	}
	if d.leaked == 0 {
		text += ", denied drops"
	} else {
		t.Logf("%d denied packets to %s arrived", d.leaked, d.to)
		text += ", denied passes"
	}
	d.leaked = 0
	return text
}
