// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

// ECT0 is the ECN code point ECT(0) (RFC 3168).
const ECT0 = 2

const (
	ipv4HeaderBytes = 20
	udpHeaderBytes  = 8
	// neighbourAdvertisement is its type in ICMPv6 (RFC 4861 section 4.4).
	neighbourAdvertisement = 136
	// firstRotatingPort starts above the well-known ports.
	firstRotatingPort = 1024
	// floodTick is how often a flood catches up with its rate: two bursts in
	// each millisecond that the wire meter tells apart.
	floodTick = 500 * time.Microsecond
)

// UDPFlood describes UDP datagrams that nobody answers.
type UDPFlood struct {
	// From and To are the sender and the receiver. The receiver has a bound
	// socket that reads nothing, so that no ICMP error comes back.
	From, To *Host `json:"-"`
	// IPv6 selects the address family.
	IPv6 bool
	// BitsPerSec is the offered rate of IP packets; 0 means as fast as one
	// thread can.
	BitsPerSec uint64
	// PayloadBytes is the size of a datagram's payload.
	PayloadBytes int
	// Segments, if above 1, sends that many datagrams per system call as one
	// GSO packet.
	Segments int
	// TOS is the IPv4 TOS or IPv6 traffic class byte, for example [ECT0].
	TOS int
	// RotatePorts gives every packet the next of 64,512 source ports, so that
	// it is a flow of its own. It excludes Segments.
	RotatePorts bool
	// Discovery sends neighbour advertisements of this size in place of
	// datagrams, as a process with CAP_NET_RAW can. It takes IPv6, and excludes
	// Segments and RotatePorts.
	Discovery bool
	// Way is how the datagrams leave the sender. One other than [BySocket] takes
	// IPv4, and excludes Segments, RotatePorts and Discovery.
	Way Way
	// On and Off, if not 0, are how long it sends and how long it is silent, in turns.
	On, Off time.Duration
	// Duration is how long the flood lasts.
	Duration time.Duration
}

// FloodResult is what a flood offered.
type FloodResult struct {
	Packets uint64 // datagrams accepted by the kernel
	Bytes   uint64 // of IP packets
	Refused uint64 // datagrams that the sending socket refused (full queue)
	Elapsed time.Duration
}

// BitsPerSec is the rate of IP packets that left the socket, in bits.
func (r *FloodResult) BitsPerSec() float64 {
	return float64(r.Bytes) * 8 / r.Elapsed.Seconds()
}

type floodArgs struct {
	UDPFlood

	From netip.Addr
	To   netip.AddrPort
	// All, if there are any, get a datagram each in turns, instead of To.
	All []netip.AddrPort
}

// StartFlood opens a sink and starts a flood to it.
func (l *Lab) StartFlood(ctx context.Context, load UDPFlood) (*FloodRun, error) {
	if load.RotatePorts && load.Segments > 1 {
		return nil, errors.New("a flood cannot both rotate ports and send segments")
	}
	if load.Discovery && (!load.IPv6 || load.RotatePorts || load.Segments > 1) {
		return nil, errors.New("neighbour discovery is of IPv6, without ports and segments")
	}
	if load.Way != BySocket && (load.IPv6 || load.RotatePorts || load.Discovery || load.Segments > 1) {
		return nil, fmt.Errorf("%q is a way of datagrams of IPv4 from one port, without segments", load.Way)
	}
	args := floodArgs{UDPFlood: load, From: load.From.Addr(load.IPv6)}
	args.Segments = max(load.Segments, 1)
	args.To = netip.AddrPortFrom(load.To.Addr(load.IPv6), 0)
	return startBoth[FloodResult](ctx, l, end{load.To, "udp-sink", &args}, &args.To, end{load.From, "udp-flood", &args})
}

func sockaddr(addr netip.AddrPort) unix.Sockaddr {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
}

func runUDPSink(args floodArgs, ready func(any), quit <-chan struct{}) any {
	fd, at, err := openSink(args.To)
	step.OK(err)
	ready(at)
	<-quit
	step.OK(unix.Close(fd))
	return struct{}{}
}

// flooder sends datagrams on one thread.
type flooder struct {
	args   floodArgs
	fd     int
	packet []byte
	dest   unix.Sockaddr
	sport  uint16
	// offer hands the packet to the kernel, or says why it was refused.
	offer func() error
}

func runUDPFlood(args floodArgs, ready func(any), quit <-chan struct{}) any {
	f := &flooder{args: args, sport: firstRotatingPort}
	step.OK(preciseThread())
	f.open()
	ready(nil)
	out := f.run(quit)
	step.OK(unix.Close(f.fd))
	return out
}

func (f *flooder) open() {
	f.offer = func() error { return unix.Sendto(f.fd, f.packet, unix.MSG_DONTWAIT, f.dest) }
	switch f.args.Way {
	case Past, PastSpoofed, PastTagged:
		f.openPast()
		return
	case BySocket, Prioritised, Stamped:
	}
	family, level, tos := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TOS
	if f.args.To.Addr().Is6() {
		family, level, tos = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	kind, proto := unix.SOCK_DGRAM, 0
	f.packet = make([]byte, f.args.PayloadBytes*f.args.Segments)
	f.dest = sockaddr(f.args.To)
	if f.args.RotatePorts {
		kind, proto = unix.SOCK_RAW, unix.IPPROTO_UDP
		f.packet = make([]byte, udpHeaderBytes+f.args.PayloadBytes)
		binary.BigEndian.PutUint16(f.packet[2:], f.args.To.Port())
		binary.BigEndian.PutUint16(f.packet[4:], uint16(len(f.packet)))
		// A raw socket takes no port in its address.
		f.dest = sockaddr(netip.AddrPortFrom(f.args.To.Addr(), 0))
	}
	if f.args.Discovery {
		kind, proto = unix.SOCK_RAW, unix.IPPROTO_ICMPV6
		f.packet = make([]byte, udpHeaderBytes+f.args.PayloadBytes)
		f.packet[0] = neighbourAdvertisement
		f.dest = sockaddr(netip.AddrPortFrom(f.args.To.Addr(), 0))
	}
	f.fd = step.Get(unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto))
	f.set("TOS", level, tos, f.args.TOS)
	if f.args.Segments > 1 {
		f.set("UDP_SEGMENT", unix.IPPROTO_UDP, unix.UDP_SEGMENT, f.args.PayloadBytes)
	}
	if f.args.RotatePorts && family == unix.AF_INET6 {
		// The kernel fills in the checksum, which IPv6 wants.
		f.set("IPV6_CHECKSUM", unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 6)
	}
	if f.args.Discovery {
		// Anything less is not neighbour discovery (RFC 4861 section 7.1).
		f.set("hop limit", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 255)
	}
	f.goes()
	f.spread()
	// Deep enough that the shaper's queue fills before the socket's budget.
	f.set("SO_SNDBUFFORCE", unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20)
}

// set is an option of the socket.
func (f *flooder) set(name string, level, option, value int) {
	step.Say(unix.SetsockoptInt(f.fd, level, option, value), "set %s %d", name, value)
}

// packetBytes is the size of the IP packets of one send.
func (f *flooder) packetBytes() uint64 {
	ip := 20
	if f.args.To.Addr().Is6() {
		ip = 40
	}
	return uint64(f.args.Segments * (ip + udpHeaderBytes + f.args.PayloadBytes))
}

// sending is for how long of the time that passed it was not silent.
func (a *floodArgs) sending(passed time.Duration) time.Duration {
	turn := a.On + a.Off
	if turn == 0 {
		return passed
	}
	turns := int64(passed / turn)
	return time.Duration(turns*int64(a.On)) + min(passed%turn, a.On)
}

func (f *flooder) run(quit <-chan struct{}) *FloodResult {
	out := &FloodResult{}
	size := f.packetBytes()
	start := monotonic()
	for tick := start; ; tick += floodTick {
		now := monotonic()
		if now >= start+f.args.Duration || closed(quit) {
			out.Elapsed = now - start
			return out
		}
		if f.args.BitsPerSec == 0 {
			for range 64 {
				f.send(out, size)
			}
			continue
		}
		due := uint64(float64(f.args.BitsPerSec) / 8 * f.args.sending(now-start).Seconds())
		offered := out.Bytes + out.Refused*size/uint64(f.args.Segments)
		for ; offered < due; offered += size {
			f.send(out, size)
		}
		sleepUntil(tick + floodTick)
	}
}

// send offers one packet; a refusal is counted, not retried, as a flood does
// not care.
func (f *flooder) send(out *FloodResult, size uint64) {
	if f.args.RotatePorts {
		binary.BigEndian.PutUint16(f.packet, f.sport)
		f.sport++
		if f.sport < firstRotatingPort {
			f.sport = firstRotatingPort
		}
	}
	n := uint64(f.args.Segments)
	if f.offer() != nil {
		out.Refused += n
		return
	}
	out.Packets += n
	out.Bytes += size
}
