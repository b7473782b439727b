// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	ipv4HeaderBytes = 20
	// PortsPerRemote is how many source ports a [Crowd] uses with each remote
	// address.
	PortsPerRemote = 1<<16 - firstRotatingPort
	// crowdTTL is Linux's own default (IPDEFTTL).
	crowdTTL = 64
	// crowdBehind is how far a crowd may be behind its rate before it gives up
	// what it could not send.
	crowdBehind = 10 * time.Millisecond
)

// Offsets in an IPv4 header without options and in the UDP header behind it
// (RFC 791, RFC 768). The kernel fills in what is missing here.
const (
	ipv4TTL       = 8
	ipv4Protocol  = 9
	ipv4Source    = 12
	ipv4Dest      = 16
	udpSourcePort = ipv4HeaderBytes
	udpDestPort   = ipv4HeaderBytes + 2
	udpLength     = ipv4HeaderBytes + 4
)

// Behind makes a client stand for every address of an IPv4 prefix, as if that
// many hosts were behind it: the node routes the prefix to it, and it takes
// what comes. No other host of the lab may have an address in it.
func (l *Lab) Behind(client *Host, p netip.Prefix) error {
	dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	err := l.node.Do(func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: client.V4.AsSlice()})
	})
	if err != nil {
		return fmt.Errorf("route %s to client %s: %w", p, client.Name, err)
	}
	err = client.Netns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			Dst: dst, LinkIndex: lo.Attrs().Index,
			Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		})
	})
	if err != nil {
		return fmt.Errorf("make %s local in client %s: %w", p, client.Name, err)
	}
	return nil
}

// Crowd describes UDP datagrams over IPv4 of many flows that nobody answers:
// between one host and many remote addresses, all of which a client stands for
// ([Lab.Behind]). A flow is a remote address and a source port.
type Crowd struct {
	// From and To are the sender and the receiver; one of them is the client.
	From, To *Host
	// Remote are the client's addresses.
	Remote netip.Prefix
	// Inwards says that the client sends; else the remote addresses are those
	// that are sent to.
	Inwards bool
	// Flows is how many there are, in turns: a packet of each, then the next of
	// each. A load that ends before the first turn does has fresh flows only.
	Flows int
	// PacketBytes is the size of an IP packet, 28 bytes of headers included.
	PacketBytes int
	// PerSecond is the number of packets altogether.
	PerSecond float64
	// Duration is how long they are sent.
	Duration time.Duration
}

// Flow is the remote address and the source port of the flow of a number, from
// 0. The network's own address is left out.
func (c *Crowd) Flow(number int) netip.AddrPort {
	a := c.Remote.Addr().As4()
	first := binary.BigEndian.Uint32(a[:])
	binary.BigEndian.PutUint32(a[:], first+1+uint32(number/PortsPerRemote))
	return netip.AddrPortFrom(netip.AddrFrom4(a), uint16(firstRotatingPort+number%PortsPerRemote))
}

func (c *Crowd) check() error {
	if c.Flows < 1 {
		return errors.New("a crowd without flows")
	}
	if least := ipv4HeaderBytes + udpHeaderBytes; c.PacketBytes < least {
		return fmt.Errorf("packets of %d bytes, at least %d are needed", c.PacketBytes, least)
	}
	if last := c.Flow(c.Flows - 1).Addr(); !c.Remote.Contains(last) {
		return fmt.Errorf("%d flows do not fit %s: the last would be of %s", c.Flows, c.Remote, last)
	}
	return nil
}

// StartCrowd opens a sink and starts the load.
func (l *Lab) StartCrowd(ctx context.Context, c Crowd) (*FloodRun, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	bind := netip.AddrPortFrom(c.To.V4, 0)
	if !c.Inwards {
		bind = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	}
	args := crowdArgs{Crowd: c, Pod: c.To.V4}
	if !c.Inwards {
		args.Pod = c.From.V4
	}
	args.From, args.To = nil, nil
	var at netip.AddrPort
	sink, err := l.startWorker(ctx, c.To, "udp-sink", bind, &at)
	if err != nil {
		return nil, err
	}
	args.ToPort = at.Port()
	flood, err := l.startWorker(ctx, c.From, "udp-crowd", args, nil)
	if err != nil {
		return nil, errors.Join(err, sink.proc.kill())
	}
	return &FloodRun{sink: sink, flood: flood}, nil
}

type crowdArgs struct {
	Crowd
	// Pod is the address of the end that is not remote, ToPort the receiver's port.
	Pod    netip.Addr
	ToPort uint16
}

// crowder sends on one thread.
type crowder struct {
	crowdArgs
	fd     int
	packet []byte
	dest   unix.SockaddrInet4
	next   int // flow
	flow   netip.AddrPort
}

func runUDPCrowd(raw json.RawMessage, ready func(any) error, quit <-chan struct{}) (any, error) {
	c := &crowder{}
	if err := json.Unmarshal(raw, &c.crowdArgs); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	if err := preciseSleep(); err != nil {
		return nil, err
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	if err := ready(nil); err != nil {
		return nil, err
	}
	out := c.run(quit)
	return out, unix.Close(c.fd)
}

// open makes a socket that takes whole IP packets, and the packet.
func (c *crowder) open() error {
	var err error
	if c.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	c.packet = make([]byte, c.PacketBytes)
	c.packet[0] = 4<<4 | ipv4HeaderBytes/4
	c.packet[ipv4TTL], c.packet[ipv4Protocol] = crowdTTL, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(c.packet[udpDestPort:], c.ToPort)
	binary.BigEndian.PutUint16(c.packet[udpLength:], uint16(c.PacketBytes-ipv4HeaderBytes))
	pod := c.Pod.As4()
	if c.Inwards {
		copy(c.packet[ipv4Dest:], pod[:])
		c.dest.Addr = pod
	} else {
		copy(c.packet[ipv4Source:], pod[:])
	}
	return unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20)
}

func (c *crowder) run(quit <-chan struct{}) *FloodResult {
	out := &FloodResult{}
	start := monotonic()
	most := c.PerSecond * crowdBehind.Seconds()
	offered := 0.0
	for tick := start; ; tick += floodTick {
		now := monotonic()
		if now >= start+c.Duration || closed(quit) {
			out.Elapsed = now - start
			return out
		}
		due := c.PerSecond * (now - start).Seconds()
		for offered = max(offered, due-most); offered < due; offered++ {
			c.send(out)
		}
		sleepUntil(tick + floodTick)
	}
}

// send offers a packet of the next flow.
func (c *crowder) send(out *FloodResult) {
	c.flow = c.Flow(c.next)
	if c.next++; c.next == c.Flows {
		c.next = 0
	}
	remote := c.flow.Addr().As4()
	if c.Inwards {
		copy(c.packet[ipv4Source:], remote[:])
	} else {
		copy(c.packet[ipv4Dest:], remote[:])
		c.dest.Addr = remote
	}
	binary.BigEndian.PutUint16(c.packet[udpSourcePort:], c.flow.Port())
	if unix.Sendto(c.fd, c.packet, unix.MSG_DONTWAIT, &c.dest) != nil {
		out.Refused++
		return
	}
	out.Packets++
	out.Bytes += uint64(c.PacketBytes)
}
