// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

const (
	tunnelIf = "tunnel"
	// tunnelPort is WireGuard's.
	tunnelPort = 51820
	// tunnelMTU leaves room for the headers of VXLAN over IPv4, 50 bytes, in 1,500.
	tunnelMTU = 1450
)

// Tunnel joins two hosts by a tunnel over IPv4 and returns them as others in the
// tunnel know them. All that they send each other by these addresses is one UDP
// flow for whoever is on the way, as with WireGuard. It is a VXLAN with one
// source port, which needs no WireGuard in the kernel. A host can have one tunnel,
// which goes with either host.
func (l *Lab) Tunnel(a, b *Host) (insideA, insideB *Host, err error) {
	sub, err := l.nextSubnet()
	if err != nil {
		return nil, nil, err
	}
	end := func(of, peer *Host, number byte) (*Host, error) {
		inside := &Host{Name: of.Name + "-" + tunnelIf, Netns: of.Netns, IfName: tunnelIf}
		inside.V4, inside.V6 = sub.nth(number)
		err := of.Netns.Do(func() error { return tunnelEnd(of, peer, inside) })
		if err != nil {
			return nil, fmt.Errorf("tunnel of %s: %w", of.Name, err)
		}
		return inside, nil
	}
	if insideA, err = end(a, b, 1); err != nil {
		return nil, nil, err
	}
	insideB, err = end(b, a, 2)
	return insideA, insideB, err
}

func tunnelEnd(of, peer, inside *Host) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = tunnelIf, tunnelMTU
	err := netlink.LinkAdd(&netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: 1, SrcAddr: of.V4.AsSlice(), Group: peer.V4.AsSlice(),
		Port: tunnelPort, PortLow: tunnelPort, PortHigh: tunnelPort + 1, // the highest is not used
	})
	if err != nil {
		return fmt.Errorf("add VXLAN: %w", err)
	}
	if err := configure(tunnelIf, inside.V4, inside.V6); err != nil {
		return err
	}
	link, err := netlink.LinkByName(tunnelIf)
	if err != nil {
		return err
	}
	// WireGuard encrypts, and sends, each packet by itself.
	if err := netlink.LinkSetGSOMaxSegs(link, 1); err != nil {
		return fmt.Errorf("device %s: one segment in a packet: %w", tunnelIf, err)
	}
	return nil
}
