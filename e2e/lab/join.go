// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Half is which of two joined labs this one is.
type Half int

// The halves. Each has half of the networks, so that their hosts have
// different addresses.
const (
	Near Half = iota
	Far
)

// halfSubnets is the first network of the far half: bit 7 of the octet that
// numbers networks.
const halfSubnets = 128

// wireSubnet is the network between the two nodes: 198.19.255.0/24, outside of
// both halves, and the last of the IPv6 networks.
func wireSubnet(h Half) (v4, v6 netip.Addr) {
	v4 = netip.AddrFrom4([4]byte{198, 19, 255, byte(h) + 1})
	_, v6 = subnet{index: maxSubnets + 1}.nth(byte(h) + 1)
	return v4, v6
}

// networks are all that a half gives to its clients and pods.
func (h Half) networks() []netip.Prefix {
	v4 := netip.AddrFrom4([4]byte{198, 18, byte(h) * halfSubnets, 0})
	v6 := subnet{index: int(h) * halfSubnets}.v6().Addr()
	return []netip.Prefix{netip.PrefixFrom(v4, 17), netip.PrefixFrom(v6, 57)}
}

// Join makes this lab one half of two, in which each half's clients and pods
// reach those of the other. device, of the host's own network namespace, leads
// to the other machine; it becomes the node's, loses its addresses and returns
// soon after the lab is closed, which the next Join waits for. Join must come before the first client and network.
func (l *Lab) Join(device string, h Half) error {
	l.mu.Lock()
	if l.subnets != 0 {
		l.mu.Unlock()
		return fmt.Errorf("a lab with %d clients and networks cannot be joined any more", l.subnets)
	}
	if h == Far {
		l.subnets = halfSubnets - 1
	}
	l.mu.Unlock()
	link, err := awaitDevice(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	fd, err := openFD(l.node.Path())
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := netlink.LinkSetNsFd(link, fd); err != nil {
		return fmt.Errorf("move device %s to the node: %w", device, err)
	}
	return l.node.Do(func() error { return routeOver(device, h) })
}

const (
	// deviceTime is how long a device takes, at most, to come back from the
	// namespace of a lab that was closed: the kernel removes those in the
	// background, an emulated one in a second, or many if its host is busy.
	deviceTime  = 30 * time.Second
	devicePause = 20 * time.Millisecond
)

// awaitDevice returns a device of the current namespace when it is there.
func awaitDevice(name string) (netlink.Link, error) {
	for deadline := monotonic() + deviceTime; ; {
		link, err := netlink.LinkByName(name)
		var missing netlink.LinkNotFoundError
		if err == nil || !errors.As(err, &missing) || monotonic() > deadline {
			return link, err
		}
		<-time.After(devicePause)
	}
}

// routeOver configures the wire in the node's namespace.
func routeOver(device string, h Half) error {
	v4, v6 := wireSubnet(h)
	if err := configure(device, v4, v6); err != nil {
		return err
	}
	other := Far
	if h == Far {
		other = Near
	}
	via4, via6 := wireSubnet(other)
	for i, via := range []netip.Addr{via4, via6} {
		dst := other.networks()[i]
		route := &netlink.Route{
			Dst: &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), dst.Addr().BitLen())},
			Gw:  via.AsSlice(),
		}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route to %s via %s: %w", dst, via, err)
		}
	}
	return nil
}
