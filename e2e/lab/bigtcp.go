// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"errors"
	"fmt"
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
	const each = `for dev in $(ip -o link show type veth | sed -E 's/^[0-9]+: ([^@:]+).*/\1/'); do ip link set $dev %s; done`
	errs := []error{l.node.Run(fmt.Sprintf(each, fmt.Sprintf("mtu %d gso_max_size %d", bigMTU, bigPacket)))}
	for _, h := range hosts {
		errs = append(errs, h.Netns.Run(fmt.Sprintf(each, fmt.Sprintf("gso_max_size %d", bigPacket))))
	}
	return errors.Join(errs...)
}
