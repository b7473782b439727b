// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// openPast opens a packet socket whose packets go past every qdisc of the sender's
// device and every program on its hooks (packet(7), PACKET_QDISC_BYPASS).
func (f *flooder) openPast() error {
	if err := f.frame(); err != nil {
		return err
	}
	var err error
	if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(f.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("set PACKET_QDISC_BYPASS: %w", err)
	}
	return nil
}

// frame makes the packet an Ethernet frame to the neighbour that the way to the
// receiver leads to, and the destination the device.
func (f *flooder) frame() error {
	hop, err := f.nextHop()
	if err != nil {
		return err
	}
	device, err := net.InterfaceByIndex(hop.Ifindex)
	if err != nil {
		return fmt.Errorf("find the way: %w", err)
	}
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
	return nil
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
func (f *flooder) nextHop() (*unix.SockaddrLinklayer, error) {
	conn, err := net.Dial("udp4", f.args.To.String())
	if err != nil {
		return nil, fmt.Errorf("find the way: %w", err)
	}
	defer func() { _ = conn.Close() }()
	for range 20 {
		if _, err := conn.Write([]byte{0}); err != nil {
			return nil, fmt.Errorf("find the way: %w", err)
		}
		sleepUntil(monotonic() + 10*time.Millisecond)
		hop, err := neighbour()
		if hop != nil || err != nil {
			return hop, err
		}
	}
	return nil, errors.New("no neighbour answers")
}

// neighbour is the one that the namespace of this process knows, nil if there is
// none yet: a pod has one way out.
func neighbour() (*unix.SockaddrLinklayer, error) {
	known, err := netlink.NeighList(0, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	for _, n := range known {
		if len(n.HardwareAddr) != 6 || [6]byte(n.HardwareAddr) == [6]byte{} {
			continue
		}
		hop := &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: n.LinkIndex, Halen: uint8(len(n.HardwareAddr))} // ETH_P_IP, network order
		copy(hop.Addr[:], n.HardwareAddr)
		return hop, nil
	}
	return nil, nil
}
