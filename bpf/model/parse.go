// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"encoding/binary"
	"net/netip"
)

// FlowKind says what a flow is known by; the values are those of enum
// pw_flow_kind.
type FlowKind uint8

// The kinds of flows.
const (
	FlowPorts FlowKind = iota + 1
	FlowHosts
	FlowEther
)

// Flow is what identifies a flow, in host byte order; IPv4 addresses are
// ::ffff:a.b.c.d.
type Flow struct {
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
	Protocol         uint8
	Kind             FlowKind
	EtherType        uint16
}

// Parsed is what the parser read of a packet.
type Parsed struct {
	Flow Flow
	// Family is 4, 6, or 0 for what is not IP.
	Family int
	// L3 and L4 are offsets; L4 is 0 if there is no transport header.
	L3, L4 int
	// Headers is the number of bytes that are known to be headers.
	Headers  int
	TOS      uint8
	hopLimit uint8
	// Control is ARP or neighbour discovery.
	Control bool
}

// Packet is a packet as the kernel shows it to a program.
type Packet struct {
	// Data is the whole packet.
	Data []byte
	// WireLen is what the kernel counted on its way out, 0 if it did not.
	WireLen uint32
	// GSOSize and GSOSegs describe how it will be segmented.
	GSOSize, GSOSegs uint32
	// Protocol is the EtherType of a packet without Ethernet header.
	Protocol uint16
	// Stamp is the departure time it carries, in ns.
	Stamp uint64
	// Priority is the skb->priority it carries.
	Priority uint32
	// Backlog is how many bytes the queue of its device holds, 0 if the kernel does
	// not tell.
	Backlog uint32
	// Sender is what the socket of a TCP sender on this node says, nil where there is
	// none.
	Sender *Sender
}

// Sender is what TCP has under way, in segments: struct pw_sender.
type Sender struct {
	// Out were sent and are not acknowledged. Of those the receiver has Sacked, and Lost
	// are taken for lost. Retransmitted were sent again.
	Out, Sacked, Lost, Retransmitted uint32
}

// Idle says that nothing is under way.
func (s *Sender) Idle() bool { return s != nil && s.Out+s.Retransmitted == s.Sacked+s.Lost }

// What the programs look at, bpf/lib/parse.h.
const (
	maxOffset      = 0x3fff
	vlanTags       = 2
	ipv6Extensions = 5
	ndHopLimit     = 255
	ndFirst        = 133
	ndLast         = 137
	tcpMinHeader   = 20
	udpHeader      = 8

	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherIPv6 = 0x86dd
	etherQinQ = 0x88a8

	protoHopOpts     = 0
	protoTCP         = 6
	protoUDP         = 17
	protoRouting     = 43
	protoFragment    = 44
	protoAH          = 51
	protoICMPv6      = 58
	protoDestination = 60
	protoSCTP        = 132
)

// packet is the bytes of a packet.
type packet []byte

// at returns size bytes from off on, nil if the packet ends before them.
func (p packet) at(off, size int) []byte {
	if off > maxOffset || off+size > len(p) {
		return nil
	}
	return p[off : off+size]
}

// Parse reads a packet. It never fails: what cannot be read any further
// belongs to the flow of what could be read.
func Parse(p *Packet, l3Only bool) Parsed {
	h := packet(p.Data)
	out := Parsed{Flow: Flow{Kind: FlowEther, EtherType: p.Protocol}}
	if !l3Only {
		parseLink(h, &out)
	}
	out.Headers = out.L3
	switch out.Flow.EtherType {
	case etherIPv4:
		parseIPv4(h, &out)
	case etherIPv6:
		parseIPv6(h, &out)
	case etherARP:
		out.Control = true
	}
	if out.L4 != 0 {
		parseTransport(h, &out)
	}
	return out
}

func parseLink(h packet, out *Parsed) {
	out.Flow.EtherType = 0
	eth := h.at(0, 14)
	if eth == nil {
		return
	}
	out.Flow.EtherType, out.L3 = binary.BigEndian.Uint16(eth[12:]), 14
	for range vlanTags {
		if out.Flow.EtherType != etherVLAN && out.Flow.EtherType != etherQinQ {
			return
		}
		tag := h.at(out.L3, 4)
		if tag == nil {
			return
		}
		out.Flow.EtherType = binary.BigEndian.Uint16(tag[2:])
		out.L3 += 4
	}
}

func parseIPv4(h packet, out *Parsed) {
	ip := h.at(out.L3, 20)
	if ip == nil || ip[0]>>4 != 4 || ip[0]&0xf < 5 {
		return
	}
	out.Family, out.TOS = 4, ip[1]
	out.Flow.Kind = FlowHosts
	out.Flow.Src = netip.AddrFrom4([4]byte(ip[12:])).As16()
	out.Flow.Dst = netip.AddrFrom4([4]byte(ip[16:])).As16()
	out.Headers = out.L3 + int(ip[0]&0xf)*4
	if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
		return // a fragment: one flow for all of the datagram
	}
	out.Flow.Protocol, out.L4 = ip[9], out.Headers
}

func parseIPv6(h packet, out *Parsed) {
	ip := h.at(out.L3, 40)
	if ip == nil || ip[0]>>4 != 6 {
		return
	}
	out.Family, out.TOS = 6, ip[0]<<4|ip[1]>>4
	out.Flow.Kind = FlowHosts
	out.Flow.Src, out.Flow.Dst = [16]byte(ip[8:]), [16]byte(ip[24:])
	out.Flow.Protocol, out.hopLimit, out.L4 = ip[6], ip[7], out.L3+40
	parseExtensions(h, out)
	if out.Flow.Protocol == protoFragment {
		out.Flow.Protocol, out.L4 = 0, 0
	}
}

func parseExtensions(h packet, out *Parsed) {
	for range ipv6Extensions {
		switch out.Flow.Protocol {
		case protoHopOpts, protoRouting, protoDestination, protoAH:
		default:
			out.Headers = out.L4
			return
		}
		ext := h.at(out.L4, 2)
		if ext == nil {
			break
		}
		if out.Flow.Protocol == protoAH {
			out.L4 += (int(ext[1]) + 2) * 4
		} else {
			out.L4 += (int(ext[1]) + 1) * 8
		}
		out.Flow.Protocol = ext[0]
	}
	out.Headers = out.L4
}

func parseTransport(h packet, out *Parsed) {
	ports := h.at(out.L4, 4)
	if ports == nil {
		return
	}
	switch out.Flow.Protocol {
	case protoTCP, protoUDP, protoSCTP:
		out.Flow.SrcPort = binary.BigEndian.Uint16(ports)
		out.Flow.DstPort = binary.BigEndian.Uint16(ports[2:])
		out.Flow.Kind = FlowPorts
	case protoICMPv6:
		if out.Family == 6 && out.hopLimit == ndHopLimit && ports[0] >= ndFirst && ports[0] <= ndLast {
			out.Control = true
		}
	}
}

func (p *Parsed) ecnCapable() bool { return p.Family != 0 && p.TOS&3 != 0 }

// WireCounted is the number of wire bytes where the kernel counted them.
func WireCounted(p *Packet) uint32 { return max(p.WireLen, uint32(len(p.Data))) }

// WireComputed is the number of wire bytes where nobody counted: the headers
// once per segment. With tunnels those of a tunnel are among them if the last segment is
// full: then what is no payload is headers.
func WireComputed(p *Packet, parsed *Parsed, tunnels bool) uint32 {
	length, segments := uint32(len(p.Data)), p.GSOSegs
	if p.GSOSize == 0 {
		return length
	}
	headers := headerBytes(p, parsed)
	if segments == 0 && length > headers {
		segments = (length - headers + p.GSOSize - 1) / p.GSOSize
	}
	if segments <= 1 {
		return length
	}
	if payload := uint64(segments) * uint64(p.GSOSize); tunnels && payload < uint64(length) {
		headers = max(headers, length-uint32(payload))
	}
	return length + (segments-1)*headers
}

func headerBytes(p *Packet, parsed *Parsed) uint32 {
	if parsed.Flow.Kind != FlowPorts {
		return uint32(parsed.Headers)
	}
	length := udpHeader
	if parsed.Flow.Protocol == protoTCP {
		length = tcpMinHeader
		if off := parsed.L4 + 12; off < len(p.Data) {
			length = max(length, int(p.Data[off]>>4)*4)
		}
	}
	return uint32(parsed.L4 + length)
}
