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

// filterPriority puts a meter behind podweir's clsact filters (49000 and
// 49001) and before its redirect (65535).
const filterPriority = 65000

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
	if !m.legacy {
		err = ns.Do(func() error { return m.attachTCX(index, dir) })
	}
	if m.legacy || errors.Is(err, ebpf.ErrNotSupported) {
		return m.attachClsact(ns, index, dir)
	}
	return err
}

func (m *Meter) attachTCX(index int, dir Direction) error {
	at := ebpf.AttachTCXIngress
	if dir == Transmitted {
		at = ebpf.AttachTCXEgress
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: m.prog, Attach: at, Anchor: link.Tail()})
	if err == nil {
		m.detach = l.Close
	}
	return err
}

// attachClsact is for kernels before 6.6. The clsact qdisc goes with the meter
// if that made it and nobody else uses it by then.
func (m *Meter) attachClsact(ns Namespace, index int, dir Direction) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	parent := uint32(netlink.HANDLE_MIN_INGRESS)
	if dir == Transmitted {
		parent = netlink.HANDLE_MIN_EGRESS
	}
	// Two meters on one hook differ by it.
	handle := uint32(m.prog.FD())
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: parent, Handle: handle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Fd: m.prog.FD(), Name: "pwlab_wire", DirectAction: true,
	}
	made := false
	err := ns.Do(func() error {
		err := netlink.QdiscAdd(qdisc)
		if made = err == nil; !made && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("clsact qdisc: %w", err)
		}
		return netlink.FilterAdd(filter)
	})
	if err != nil {
		return err
	}
	m.detach = func() error {
		return ns.Do(func() error {
			err := netlink.FilterDel(filter)
			if !made || err != nil {
				return ignoreGone(err)
			}
			return removeUnused(qdisc)
		})
	}
	return nil
}

// removeUnused removes a clsact qdisc without filters.
func removeUnused(qdisc *netlink.Clsact) error {
	dev := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: qdisc.LinkIndex}}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netlink.FilterList(dev, parent)
		if err != nil || len(filters) > 0 {
			return ignoreGone(err)
		}
	}
	return ignoreGone(netlink.QdiscDel(qdisc))
}

// ignoreGone forgives that a device, qdisc or filter went before the meter.
func ignoreGone(err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
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
