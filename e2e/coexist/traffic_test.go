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

// patience is how long a packet may take.
const patience = 5 * time.Second

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
	buf := make([]byte, 2*countedBytes)
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

// arrived returns how many datagrams have come that begin with a byte, and discards all.
func (s socket) arrived(first byte) (n int) {
	for buf := make([]byte, 1); ; {
		if _, _, err := unix.Recvfrom(int(s), buf, unix.MSG_DONTWAIT); err != nil {
			return n
		}
		if buf[0] == first {
			n++
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
	sender, flooder socket
	allowed, denied socket
	floods          byte
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
	out := &traffic{
		egress:  &direction{to: clientAddr, flooder: newSocket(t, p.ns, p.addr, 0)},
		ingress: &direction{to: p.addr, flooder: newSocket(t, p.rig.client, clientAddr, 0)},
	}
	out.egress.allowed, out.egress.denied, out.ingress.sender = at(p.rig.client, clientAddr)
	out.ingress.allowed, out.ingress.denied, out.egress.sender = at(p.ns, p.addr)
	for _, d := range out.both() {
		d.probe(t)
		if d.leaked == 0 {
			t.Fatal("denied packets do not arrive without a policy: nothing would be proven")
		}
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
