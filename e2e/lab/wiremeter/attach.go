// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package wiremeter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attach loads the program and puts it where dir says.
func (m *Meter) attach(ns Namespace, ifName string, dir Direction) error {
	kind := ebpf.SchedCLS
	if dir == Delivered {
		kind = ebpf.SocketFilter
	}
	var index int
	err := ns.Do(func() error {
		dev, err := netlink.LinkByName(ifName)
		if err == nil {
			index = dev.Attrs().Index
		}
		return err
	})
	if err != nil {
		return err
	}
	if m.prog, err = newProgram(m.buckets, kind, index); err != nil {
		return err
	}
	if dir == Delivered {
		return ns.Do(m.attachSockets)
	}
	return ns.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: m.prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()})
		if err == nil {
			m.detach = l.Close
		}
		return err
	})
}

// attachSockets opens packet sockets that count and take nothing. One for all
// protocols would see packets before the ingress hook; one for each stands
// behind it (net/core/dev.c, __netif_receive_skb_core). They are not bound to
// the device, because the stack would have to clone every packet for them.
func (m *Meter) attachSockets() error {
	var fds []int
	m.detach = func() error {
		var errs []error
		for _, fd := range fds {
			errs = append(errs, unix.Close(fd))
		}
		return errors.Join(errs...)
	}
	for _, proto := range []uint16{unix.ETH_P_IP, unix.ETH_P_IPV6} {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		fds = append(fds, fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, m.prog.FD()); err != nil {
			return fmt.Errorf("attach to packet socket: %w", err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(proto)}); err != nil {
			return fmt.Errorf("bind packet socket: %w", err)
		}
	}
	return nil
}
