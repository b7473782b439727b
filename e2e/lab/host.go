// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// podIfName is the name of the interface inside pods and clients.
const podIfName = "eth0"

// maxSubnets is how many clients and networks fit the third octet.
const maxSubnets = 254

// Host is one end of traffic: a pod or a client.
type Host struct {
	// Name is unique within the lab.
	Name string
	// Netns is where the processes of the host run.
	Netns *Netns
	// IfName is the interface that traffic enters and leaves by.
	IfName string
	// V4 and V6 are its addresses.
	V4, V6 netip.Addr
}

// Addr returns the IPv6 or the IPv4 address.
func (h *Host) Addr(v6 bool) netip.Addr {
	if v6 {
		return h.V6
	}
	return h.V4
}

// subnet is a pair of networks, an IPv4 /24 and an IPv6 /64.
type subnet struct{ index int }

// nextSubnet draws networks from 198.18.0.0/16 (RFC 2544, benchmarking) and
// fd00:6b0e::/32 (RFC 4193): nothing outside the lab's namespaces routes there.
func (l *Lab) nextSubnet() (subnet, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subnets == maxSubnets {
		return subnet{}, fmt.Errorf("a lab has room for %d clients and networks", maxSubnets)
	}
	l.subnets++
	return subnet{index: l.subnets}, nil
}

func (s subnet) v4() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(s.index), 0}), 24)
}

func (s subnet) v6() netip.Prefix {
	a := [16]byte{0: 0xfd, 2: 0x6b, 3: 0x0e, 7: byte(s.index)}
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// nth is the address of both families that ends in n.
func (s subnet) nth(n byte) (v4, v6 netip.Addr) {
	a4, a6 := s.v4().Addr().As4(), s.v6().Addr().As16()
	a4[3], a6[15] = n, n
	return netip.AddrFrom4(a4), netip.AddrFrom16(a6)
}

// Client makes a namespace that reaches the pods through the node, by a veth
// pair of its own, and is reached by them.
func (l *Lab) Client(name string) (*Host, error) {
	sub, err := l.nextSubnet()
	if err != nil {
		return nil, err
	}
	ns, _, err := l.newNamespace("-" + name)
	if err != nil {
		return nil, err
	}
	nodeIf := fmt.Sprintf("client%d", sub.index)
	if err := l.wire(ns, nodeIf, sub); err != nil {
		return nil, fmt.Errorf("client %s: %w", name, err)
	}
	v4, v6 := sub.nth(2)
	return &Host{Name: name, Netns: ns, IfName: podIfName, V4: v4, V6: v6}, nil
}

// wire connects a namespace to the node: address 1 of the subnet is the node,
// address 2 is the client.
func (l *Lab) wire(ns *Netns, nodeIf string, sub subnet) error {
	gw4, gw6 := sub.nth(1)
	v4, v6 := sub.nth(2)
	if err := l.pair(ns, nodeIf); err != nil {
		return err
	}
	if err := l.node.Do(func() error { return configure(nodeIf, gw4, gw6) }); err != nil {
		return err
	}
	return ns.Do(func() error {
		if err := configure(podIfName, v4, v6); err != nil {
			return err
		}
		for _, gw := range []netip.Addr{gw4, gw6} {
			if err := netlink.RouteAdd(&netlink.Route{Gw: gw.AsSlice()}); err != nil {
				return fmt.Errorf("default route via %s: %w", gw, err)
			}
		}
		return nil
	})
}

// pair makes a veth pair of which the node has one end.
func (l *Lab) pair(ns *Netns, nodeIf string) error {
	return l.node.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = nodeIf
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: podIfName}
		veth.PeerNamespace = netlink.NsFd(ns.FD())
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth %s: %w", nodeIf, err)
		}
		return nil
	})
}

// configure gives a device of the current namespace its addresses and sets it
// up.
func configure(ifName string, v4, v6 netip.Addr) error {
	link, err := netlink.LinkByName(ifName)
	if err != nil {
		return fmt.Errorf("device %s: %w", ifName, err)
	}
	for _, addr := range []*netlink.Addr{
		{IPNet: &net.IPNet{IP: v4.AsSlice(), Mask: net.CIDRMask(24, 32)}},
		{IPNet: &net.IPNet{IP: v6.AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD},
	} {
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("device %s: address %s: %w", ifName, addr, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("device %s: set up: %w", ifName, err)
	}
	return nil
}
