// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

// echoBytes is the size of a request and of its response on a kept connection:
// the size of a ping. At 200 per second they are 2 % of a cap of 10 Mbit/s.
const echoBytes = 64

// EchoLoad describes requests and responses of 64 bytes on one connection
// that stays open.
type EchoLoad struct {
	// From and To are the client and the server.
	From, To *Host `json:"-"`
	// PerSecond is how many requests are sent per second, whether or not the
	// earlier responses have arrived.
	PerSecond float64
	// Duration is how long requests are sent.
	Duration time.Duration
	// Timeout ends the load if no response arrives for so long.
	Timeout time.Duration
}

type echoArgs struct {
	EchoLoad

	Addr netip.AddrPort
}

// StartEcho starts a server, connects to it and starts the load.
func (l *Lab) StartEcho(ctx context.Context, load EchoLoad) (*RequestsRun, error) {
	args := echoArgs{EchoLoad: load, Addr: netip.AddrPortFrom(load.To.V4, 0)}
	return startBoth[Latencies](ctx, l, end{load.To, "echo-server", &args}, &args.Addr, end{load.From, "echo-client", &args})
}

// tcpSocket makes a blocking socket: the echo pair stays out of Go's poller,
// whose wake-ups would be part of the measurement.
func tcpSocket() int {
	fd := step.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	step.OK(setCongestionControl(fd))
	return fd
}

// setCongestionControl is per socket because a namespace other than the
// host's can only take a default that every user may use.
func setCongestionControl(fd int) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestionControl)
}

func runEchoServer(args echoArgs, ready func(any), _ <-chan struct{}) any {
	runtime.LockOSThread()
	fd := tcpSocket()
	step.OK(errors.Join(unix.Bind(fd, sockaddr(args.Addr)), unix.Listen(fd, 1)))
	ready(netip.AddrPortFrom(args.Addr.Addr(), step.Get(boundPort(fd))))
	conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	step.Say(err, "accept")
	step.OK(unix.SetsockoptInt(conn, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	for buf := make([]byte, echoBytes); readFull(conn, buf) == nil; {
		step.Get(unix.Write(conn, buf))
	}
	return struct{}{} // the client has closed: the normal end
}

func boundPort(fd int) (_ uint16, err error) {
	defer step.End(&err)
	sa := step.Get(unix.Getsockname(fd))
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(sa.Port), nil
	case *unix.SockaddrInet6:
		return uint16(sa.Port), nil
	default:
		return 0, fmt.Errorf("socket address of type %T", sa)
	}
}

func readFull(fd int, buf []byte) error {
	for got := 0; got < len(buf); {
		n, err := unix.Read(fd, buf[got:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return unix.ECONNRESET
		default:
			got += n
		}
	}
	return nil
}

func runEchoClient(args echoArgs, ready func(any), quit <-chan struct{}) any {
	step.OK(preciseThread())
	fd := tcpSocket()
	timeout := unix.NsecToTimeval(int64(args.Timeout))
	step.OK(errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
	))
	step.Say(unix.Connect(fd, sockaddr(args.Addr)), "connect to %s", args.Addr)
	ready(nil)
	defer step.Close(func() error { return unix.Close(fd) })
	return echoLoop(fd, args, quit)
}

// echoLoop sends each request when it is due, whether or not earlier responses
// are there, and reads on another thread: a slow answer delays nobody's
// question, so the latencies do not depend on how long the load lasts.
func echoLoop(fd int, args echoArgs, quit <-chan struct{}) *Latencies {
	gap := float64(time.Second) / args.PerSecond
	start := monotonic()
	total := int(math.Ceil(float64(args.Duration) / gap))
	due := func(i int) time.Duration { return start + time.Duration(float64(i)*gap) }

	var rec recorder
	var reader sync.WaitGroup
	reader.Go(func() {
		runtime.LockOSThread()
		echoRead(fd, total, due, &rec)
	})
	buf := make([]byte, echoBytes)
	for i := 0; i < total && !closed(quit); i++ {
		sleepUntil(due(i))
		if _, err := unix.Write(fd, buf); err != nil {
			// The reader sees the end and counts what is missing.
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
			break
		}
	}
	reader.Wait()
	return rec.result(max(monotonic()-start, args.Duration))
}

// echoRead counts the response of every request; when one does not arrive
// before the socket's timeout, it and all later ones count as failed.
func echoRead(fd, total int, due func(int) time.Duration, rec *recorder) {
	buf := make([]byte, echoBytes)
	var err error
	for i := range total {
		if err == nil {
			err = readFull(fd, buf)
		}
		if errors.Is(err, unix.EAGAIN) {
			err = errNoResponse
		}
		rec.add(max(monotonic()-due(i), 0), err)
	}
}

// errNoResponse is the reason of requests whose response did not arrive in
// time.
var errNoResponse = errors.New("timeout")
