// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/step"
)

// openPast opens a packet socket whose packets go past every qdisc of the sender's
// device and every program on its hooks (packet(7), PACKET_QDISC_BYPASS).
func (f *flooder) openPast() {
	f.frame()
	f.fd = step.Get(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0))
	f.set("PACKET_QDISC_BYPASS", unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
}

// frame makes the packet an Ethernet frame to the neighbour that the way to the
// receiver leads to, and the destination the device.
func (f *flooder) frame() {
	hop := f.nextHop()
	device := step.Get(net.InterfaceByIndex(hop.Ifindex))
	from := device.HardwareAddr
	if f.args.Way == PastSpoofed {
		from = net.HardwareAddr{0x02, 0xba, 0xdb, 0xad, 0xba, 0xd0}
	}
	head := slices.Concat(hop.Addr[:hop.Halen], from)
	if f.args.Way == PastTagged {
		head = binary.BigEndian.AppendUint16(head, unix.ETH_P_8021Q)
		head = binary.BigEndian.AppendUint16(head, 7<<13) // the highest priority
	}
	head = binary.BigEndian.AppendUint16(head, unix.ETH_P_IP)
	f.packet, f.dest = append(head, f.datagram()...), hop
}

// datagram is an IPv4 packet without a UDP checksum, which is its sender's choice.
func (f *flooder) datagram() []byte {
	const ipHeaderBytes = 20
	p := make([]byte, ipHeaderBytes+udpHeaderBytes+f.args.PayloadBytes)
	from, to := f.args.From.As4(), f.args.To.Addr().As4()
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	p[1] = byte(f.args.TOS)
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	copy(p[12:], from[:])
	copy(p[16:], to[:])
	sum := uint32(0)
	for i := 0; i < ipHeaderBytes; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum>>16+sum))
	binary.BigEndian.PutUint16(p[20:], firstRotatingPort)
	binary.BigEndian.PutUint16(p[22:], f.args.To.Port())
	binary.BigEndian.PutUint16(p[24:], uint16(udpHeaderBytes+f.args.PayloadBytes))
	return p
}

// nextHop is the neighbour that the way to the receiver leads to. The kernel is
// requested it by sending something there.
func (f *flooder) nextHop() *unix.SockaddrLinklayer {
	conn := step.Get(net.Dial("udp4", f.args.To.String()))
	defer func() { _ = conn.Close() }()
	for range 20 {
		step.Get(conn.Write([]byte{0}))
		sleepUntil(monotonic() + 10*time.Millisecond)
		if hop := neighbour(); hop != nil {
			return hop
		}
	}
	step.OK(errors.New("no neighbour answers"))
	return nil
}

// neighbour is the one that the namespace of this process knows, nil if there is
// none yet: a pod has one way out.
func neighbour() *unix.SockaddrLinklayer {
	for _, n := range step.Get(netlink.NeighList(0, netlink.FAMILY_V4)) {
		if len(n.HardwareAddr) != 6 || [6]byte(n.HardwareAddr) == [6]byte{} {
			continue
		}
		hop := &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: n.LinkIndex, Halen: uint8(len(n.HardwareAddr))} // ETH_P_IP, network order
		copy(hop.Addr[:], n.HardwareAddr)
		return hop
	}
	return nil
}
