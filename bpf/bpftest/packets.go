// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpftest

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Layer prepends its header to a payload.
type Layer func(payload []byte) []byte

// Build puts layers around size bytes of payload, the outermost first.
func Build(size int, layers ...Layer) []byte {
	p := make([]byte, size)
	for _, layer := range slices.Backward(layers) {
		p = layer(p)
	}
	return p
}

func prepend(header, payload []byte) []byte { return append(header, payload...) }

// Ethernet is an Ethernet header.
func Ethernet(etherType uint16) Layer {
	return func(payload []byte) []byte {
		h := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0}
		binary.BigEndian.PutUint16(h[12:], etherType)
		return prepend(h, payload)
	}
}

// VLAN is what follows the EtherType of a tag: the tag and the next EtherType.
func VLAN(id, etherType uint16) Layer {
	return func(payload []byte) []byte {
		h := make([]byte, 4)
		binary.BigEndian.PutUint16(h, id)
		binary.BigEndian.PutUint16(h[2:], etherType)
		return prepend(h, payload)
	}
}

// Tag puts an 802.1Q tag into an Ethernet packet.
func Tag(data []byte) []byte {
	out := append([]byte(nil), data[:12]...)
	out = append(out, 0x81, 0x00, 0x00, 0x07)
	return append(out, data[12:]...)
}

// IPv4 is an IPv4 header with a valid checksum. options is in bytes, a multiple
// of 4; fragment is the field with the flags and the offset.
func IPv4(src, dst string, protocol, tos uint8, fragment uint16, options int) Layer {
	return func(payload []byte) []byte {
		h := make([]byte, 20+options)
		h[0] = 4<<4 | byte(len(h)/4)
		h[1] = tos
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(payload)))
		binary.BigEndian.PutUint16(h[6:], fragment)
		h[8], h[9] = 64, protocol
		for i := range options {
			h[20+i] = 1 // no operation
		}
		copy(h[12:], netip.MustParseAddr(src).AsSlice())
		copy(h[16:], netip.MustParseAddr(dst).AsSlice())
		binary.BigEndian.PutUint16(h[10:], ^Checksum(h))
		return prepend(h, payload)
	}
}

// Checksum is the ones' complement sum of RFC 1071; over a header with a valid
// checksum it is 0xffff.
func Checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// IPv6 is an IPv6 header.
func IPv6(src, dst string, next, hopLimit, class uint8) Layer {
	return func(payload []byte) []byte {
		h := make([]byte, 40)
		h[0], h[1] = 6<<4|class>>4, class<<4
		binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
		h[6], h[7] = next, hopLimit
		copy(h[8:], netip.MustParseAddr(src).AsSlice())
		copy(h[24:], netip.MustParseAddr(dst).AsSlice())
		return prepend(h, payload)
	}
}

// Extension is an IPv6 extension header of 8 bytes and length units more; what
// a unit is depends on its type.
func Extension(next, length uint8, size int) Layer {
	return func(payload []byte) []byte {
		h := make([]byte, size)
		h[0], h[1] = next, length
		return prepend(h, payload)
	}
}

// TCP is a TCP header of words times 4 bytes.
func TCP(src, dst uint16, words int) Layer {
	return func(payload []byte) []byte {
		h := make([]byte, words*4)
		binary.BigEndian.PutUint16(h, src)
		binary.BigEndian.PutUint16(h[2:], dst)
		h[12] = byte(words << 4)
		return prepend(h, payload)
	}
}

// UDP is a UDP header.
func UDP(src, dst uint16) Layer {
	return func(payload []byte) []byte {
		h := make([]byte, 8)
		binary.BigEndian.PutUint16(h, src)
		binary.BigEndian.PutUint16(h[2:], dst)
		binary.BigEndian.PutUint16(h[4:], uint16(len(h)+len(payload)))
		return prepend(h, payload)
	}
}

// Raw is bytes in front of the payload.
func Raw(b ...byte) Layer {
	return func(payload []byte) []byte { return prepend(append([]byte(nil), b...), payload) }
}

// Corpus is a packet of each kind that the parser tells apart, by what it is.
func Corpus() map[string][]byte {
	const a4, b4, a6, b6 = "10.0.0.1", "192.0.2.9", "2001:db8::1", "2001:db8:5::9"
	v4 := func(protocol uint8) Layer { return IPv4(a4, b4, protocol, 0, 0, 0) }
	v6 := func(next uint8) Layer { return IPv6(a6, b6, next, 64, 0) }
	eth4, eth6 := Ethernet(0x0800), Ethernet(0x86dd)
	packets := map[string][]byte{
		"TCP over IPv4":                Build(1446, eth4, v4(6), TCP(40000, 443, 5)),
		"TCP with options over IPv4":   Build(100, eth4, v4(6), TCP(40000, 443, 8)),
		"UDP over IPv4":                Build(18, eth4, v4(17), UDP(5000, 53)),
		"UDP with ECT(0)":              Build(18, eth4, IPv4(a4, b4, 17, 2, 0, 0), UDP(5000, 53)),
		"UDP with ECT(1) over IPv6":    Build(18, eth6, IPv6(a6, b6, 17, 64, 1), UDP(5000, 53)),
		"SCTP":                         Build(40, eth4, v4(132), Raw(0x9c, 0x40, 0x0b, 0x59)),
		"ICMP":                         Build(56, eth4, v4(1), Raw(8, 0, 0, 0)),
		"ESP":                          Build(56, eth4, v4(50)),
		"IPv4 with options":            Build(18, eth4, IPv4(a4, b4, 17, 0, 0, 40), UDP(5000, 53)),
		"first IPv4 fragment":          Build(1400, eth4, IPv4(a4, b4, 17, 0, 0x2000, 0), UDP(5000, 53)),
		"later IPv4 fragment":          Build(1400, eth4, IPv4(a4, b4, 17, 0, 0x00b9, 0)),
		"IPv4 header of another kind":  Build(40, eth4, Raw(0x65, 0)),
		"IPv4 header too short":        Build(40, eth4, Raw(0x44, 0)),
		"IPv4 cut in its header":       Build(10, eth4, Raw(0x45, 0)),
		"IPv4 cut before the ports":    Build(2, eth4, v4(6)),
		"TCP over IPv6":                Build(1426, eth6, v6(6), TCP(40000, 443, 5)),
		"UDP over IPv6":                Build(18, eth6, v6(17), UDP(5000, 53)),
		"ping over IPv6":               Build(56, eth6, v6(58), Raw(128, 0, 0, 0)),
		"hop-by-hop and destination":   Build(18, eth6, v6(0), Extension(60, 1, 16), Extension(17, 0, 8), UDP(5000, 53)),
		"AH over IPv6":                 Build(18, eth6, v6(51), Extension(17, 4, 24), UDP(5000, 53)),
		"routing header":               Build(18, eth6, v6(43), Extension(6, 2, 24), TCP(40000, 443, 5)),
		"first IPv6 fragment":          Build(1200, eth6, v6(44), Extension(17, 0, 8), UDP(5000, 53)),
		"more extensions than allowed": Build(18, eth6, v6(60), Extension(60, 0, 8), Extension(60, 0, 8), Extension(60, 0, 8), Extension(60, 0, 8), Extension(60, 0, 8), Extension(17, 0, 8), UDP(5000, 53)),
		"long extension header":        Build(200, eth6, v6(60), Extension(17, 30, 248), UDP(5000, 53)),
		"IPv6 cut in an extension":     Build(0, eth6, v6(60), Raw(17)),
		"IPv6 cut in its header":       Build(20, eth6, Raw(0x60)),
		"neighbour solicitation":       Build(20, eth6, IPv6(a6, b6, 58, 255, 0), Raw(135, 0, 0, 0)),
		"router advertisement":         Build(12, eth6, IPv6(a6, b6, 58, 255, 0), Raw(134, 0, 0, 0)),
		"forged neighbour discovery":   Build(1000, eth6, IPv6(a6, b6, 58, 64, 0), Raw(135, 0, 0, 0)),
		"ARP":                          Build(28, Ethernet(0x0806)),
		"802.1Q":                       Build(18, Ethernet(0x8100), VLAN(7, 0x0800), v4(17), UDP(5000, 53)),
		"802.1ad and 802.1Q":           Build(18, Ethernet(0x88a8), VLAN(7, 0x8100), VLAN(8, 0x86dd), v6(17), UDP(5000, 53)),
		"three tags":                   Build(18, Ethernet(0x88a8), VLAN(7, 0x8100), VLAN(8, 0x8100), VLAN(9, 0x0800), v4(17), UDP(5000, 53)),
		"tag and nothing":              Build(1, Ethernet(0x8100)),
		"PPPoE":                        Build(60, Ethernet(0x8864)),
		"Ethernet header only":         Build(0, Ethernet(0x0800)),
		"unassigned EtherType":         Build(100, Ethernet(0xbeef), Raw(0x45, 0x00)),
	}
	return packets
}
