// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

const (
	// callHead is the number of a datagram, which is what the other end sends
	// back of it.
	callHead = 8
	// callPatience is how long an answer is waited for.
	callPatience = 3 * time.Second
	// callPoll is how long the receiver waits before it looks whether the load
	// is over.
	callPoll = 20 // ms
)

// Calls describes UDP flows of a constant rate, as of telephones: a datagram is
// answered by a small one, so that what is lost and how long it took is known to
// the sender.
type Calls struct {
	// From and To are the sender and who answers.
	From, To *Host `json:"-"`
	// Flows is how many there are, in turns, each from a port of its own.
	Flows int
	// PacketBytes is the size of an IP packet, 28 bytes of headers included.
	PacketBytes int
	// PerSecond is the number of packets of all flows together.
	PerSecond float64
	// Duration is how long they are sent.
	Duration time.Duration
}

type callsArgs struct {
	Calls

	Addr netip.AddrPort
}

// StartCalls starts who answers, and the load.
func (l *Lab) StartCalls(ctx context.Context, c Calls) (*RequestsRun, error) {
	args := callsArgs{Calls: c, Addr: netip.AddrPortFrom(c.To.V4, 0)}
	if least := ipv4HeaderBytes + udpHeaderBytes + callHead; c.Flows < 1 || c.PacketBytes < least || c.PerSecond <= 0 {
		return nil, fmt.Errorf("%d calls with packets of %d bytes, %g per second: at least 1 and %d bytes, and more than 0, are needed",
			c.Flows, c.PacketBytes, c.PerSecond, least)
	}
	return startBoth[Latencies](ctx, l, end{c.To, "call-server", &args}, &args.Addr, end{c.From, "call-client", &args})
}

// runCallServer sends the first bytes of each datagram back.
func runCallServer(args callsArgs, ready func(any), _ <-chan struct{}) any {
	runtime.LockOSThread()
	fd, at, err := openSink(args.Addr)
	step.OK(err)
	step.OK(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20))
	ready(at)
	buf := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err == nil && n >= callHead {
			err = unix.Sendto(fd, buf[:callHead], 0, from)
		}
		// What cannot be sent back is lost, and counts as that.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			step.OK(err)
		}
	}
}

// caller is the sender's end.
type caller struct {
	callsArgs
	fds []int
}

func runCallClient(args callsArgs, ready func(any), quit <-chan struct{}) any {
	c := &caller{callsArgs: args}
	step.OK(preciseThread())
	epoll := c.open()
	ready(nil)
	return step.Get(c.run(epoll, quit))
}

// open makes a socket for each flow, and what tells of answers on any.
func (c *caller) open() (epoll int) {
	epoll = step.Get(unix.EpollCreate1(unix.EPOLL_CLOEXEC))
	for range c.Flows {
		fd := step.Get(openUDP(c.Addr))
		step.OK(unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
		c.fds = append(c.fds, fd)
	}
	return epoll
}

// openUDP opens a socket to an address that never waits, with room for more than a queue has.
func openUDP(to netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	return fd, errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20), unix.Connect(fd, sockaddr(to)))
}

// run sends on this thread and takes the answers on another.
func (c *caller) run(epoll int, quit <-chan struct{}) (*Latencies, error) {
	n := int(c.PerSecond * c.Duration.Seconds())
	start := monotonic()
	due := func(i int) time.Duration { return start + time.Duration(float64(i)/c.PerSecond*float64(time.Second)) }
	over := make(chan struct{})
	type answers struct {
		took []time.Duration // 0: none came
		err  error
	}
	got := make(chan answers, 1)
	go func() {
		runtime.LockOSThread()
		took, err := c.receive(epoll, n, due, over)
		got <- answers{took, err}
	}()
	packet := make([]byte, c.PacketBytes-ipv4HeaderBytes-udpHeaderBytes)
	sent := 0
	for ; sent < n && !closed(quit); sent++ {
		sleepUntil(due(sent))
		binary.BigEndian.PutUint64(packet, uint64(sent))
		// What a socket refuses is lost, and counts as that.
		_, _ = unix.Write(c.fds[sent%len(c.fds)], packet)
	}
	elapsed := monotonic() - start
	sleepUntil(start + elapsed + callPatience)
	close(over)
	a := <-got
	rec := &recorder{}
	for _, took := range a.took[:sent] {
		// What comes later is of no use to a call.
		if took == 0 || took >= callPatience {
			rec.add(callPatience, errNoAnswer)
		} else {
			rec.add(took, nil)
		}
	}
	return rec.result(elapsed), a.err
}

var errNoAnswer = errors.New("no answer")

// receive notes how long after it was due each datagram was answered.
func (c *caller) receive(epoll, n int, due func(int) time.Duration, over <-chan struct{}) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	events, buf := make([]unix.EpollEvent, len(c.fds)), make([]byte, callHead)
	for !closed(over) {
		ready, err := unix.EpollWait(epoll, events, callPoll)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return took, err
		}
		for _, e := range events[:max(ready, 0)] {
			for {
				if _, err := unix.Read(int(e.Fd), buf); err != nil {
					break // nothing more
				}
				if i := binary.BigEndian.Uint64(buf); i < uint64(n) {
					took[i] = max(monotonic()-due(int(i)), 1)
				}
			}
		}
	}
	return took, nil
}
