// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// bigPacket is below what a veth carries (512 KiB) and far above the 64 kB of
// a packet without BIG TCP.
const bigPacket = 500_000

// bigMTU makes room for the 8 bytes of the jumbo header: a router counts them
// to each segment (skb_gso_validate_network_len) although none will have them,
// and refuses BIG TCP otherwise. Kernels without the header do not mind.
const bigMTU = 1508

// AllowBigTCP lets TCP over IPv6 send packets of up to 500,000 bytes on every
// veth of the lab's node and of the given hosts. It needs Linux 5.19.
func (l *Lab) AllowBigTCP(hosts ...*Host) error {
	all := []*Netns{l.node}
	for _, h := range hosts {
		all = append(all, h.Netns)
	}
	for _, ns := range all {
		err := ns.Do(func() error {
			links, err := netlink.LinkList()
			if err != nil {
				return err
			}
			for _, dev := range links {
				if dev.Type() != "veth" {
					continue
				}
				if ns == l.node {
					if err := netlink.LinkSetMTU(dev, bigMTU); err != nil {
						return fmt.Errorf("device %s: MTU %d: %w", dev.Attrs().Name, bigMTU, err)
					}
				}
				if err := netlink.LinkSetGSOMaxSize(dev, bigPacket); err != nil {
					return fmt.Errorf("device %s: GSO size %d: %w", dev.Attrs().Name, bigPacket, err)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("namespace %s: %w", ns.Name(), err)
		}
	}
	return nil
}
