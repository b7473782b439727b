// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// openPast opens a packet socket whose packets go past every qdisc of the sender's
// device and every program on its hooks (packet(7), PACKET_QDISC_BYPASS), and builds
// the datagram that it sends. The socket needs CAP_NET_RAW, which containers have.
func (f *flooder) openPast() error {
	hop, err := f.nextHop()
	if err != nil {
		return err
	}
	f.packet = f.datagram()
	if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(f.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("set PACKET_QDISC_BYPASS: %w", err)
	}
	f.dest = hop
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
// asked for it by sending something there.
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
	table, err := os.Open("/proc/thread-self/net/arp")
	if err != nil {
		return nil, err
	}
	defer func() { _ = table.Close() }()
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 {
			continue
		}
		mac, err := net.ParseMAC(fields[3])
		device, noDevice := net.InterfaceByName(fields[5])
		if err != nil || noDevice != nil || len(mac) != 6 || [6]byte(mac) == [6]byte{} {
			continue
		}
		hop := &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: device.Index, Halen: uint8(len(mac))} // ETH_P_IP, network order
		copy(hop.Addr[:], mac)
		return hop, nil
	}
	return nil, lines.Err()
}
