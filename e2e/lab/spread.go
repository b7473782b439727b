// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

// Spread describes UDP datagrams to many hosts in turns, each to another one, as
// fast as one thread can. The thread does all of the way to the receivers'
// sockets itself, so that its time for a packet is the packet's cost.
type Spread struct {
	From *Host
	To   *Sinks
	// PayloadBytes is the size of a datagram's payload.
	PayloadBytes int
	// Duration is how long it lasts.
	Duration time.Duration
}

// Sinks are bound sockets of many hosts that nobody reads, so that no ICMP error
// comes back: the kernel drops what they get.
type Sinks struct {
	fds   []int
	addrs []netip.AddrPort
}

// OpenSinks opens one on each host, for IPv4. The caller must call Close before
// the hosts' namespaces can go.
func OpenSinks(hosts []*Host) (*Sinks, error) {
	s := &Sinks{}
	for _, h := range hosts {
		err := h.Netns.Do(func() error {
			fd, at, err := openSink(netip.AddrPortFrom(h.V4, 0))
			if err == nil {
				s.fds, s.addrs = append(s.fds, fd), append(s.addrs, at)
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("socket of %s: %w", h.Name, err), s.Close())
		}
	}
	return s, nil
}

// Close closes the sockets.
func (s *Sinks) Close() error {
	var errs []error
	for _, fd := range s.fds {
		errs = append(errs, unix.Close(fd))
	}
	s.fds = nil
	return errors.Join(errs...)
}

// Part is some of the sinks; it must not be closed.
func (s *Sinks) Part(from, to int) *Sinks { return &Sinks{addrs: s.addrs[from:to]} }

// openSink opens a socket with a tiny buffer: what nobody reads is dropped at
// once. Port 0 is any.
func openSink(addr netip.AddrPort) (fd int, at netip.AddrPort, err error) {
	family := unix.AF_INET
	if addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, at, fmt.Errorf("socket: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil {
		return 0, at, err
	}
	if err := unix.Bind(fd, sockaddr(addr)); err != nil {
		return 0, at, fmt.Errorf("bind: %w", err)
	}
	port, err := boundPort(fd)
	return fd, netip.AddrPortFrom(addr.Addr(), port), err
}

// spreadPort is the source of every datagram: one load after the other is the
// same flow.
const spreadPort = 4000

// Spread sends and returns what was sent; packets of Ethernet are not in its
// bytes, headers of IP are.
func (l *Lab) Spread(ctx context.Context, load Spread) (*FloodResult, error) {
	w, err := l.startWorker(ctx, load.From, "udp-flood", floodArgs{
		UDPFlood: UDPFlood{PayloadBytes: load.PayloadBytes, Segments: 1, Duration: load.Duration},
		To:       load.To.addrs[0], All: load.To.addrs,
	}, nil)
	if err != nil {
		return nil, err
	}
	var out FloodResult
	return &out, w.result(ctx, &out)
}

// spread has datagrams go to all receivers in turns.
func (f *flooder) spread() {
	if f.args.All == nil {
		return
	}
	dests, next := make([]unix.Sockaddr, len(f.args.All)), 0
	for i, to := range f.args.All {
		dests[i] = sockaddr(to)
	}
	f.offer = func() error {
		err := unix.Sendto(f.fd, f.packet, 0, dests[next])
		if next++; next == len(dests) {
			next = 0
		}
		return err
	}
	step.OK(unix.Bind(f.fd, &unix.SockaddrInet4{Port: spreadPort}))
}
