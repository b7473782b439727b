// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"fmt"

	"github.com/podweir/podweir/e2e/step"
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
	defer step.End(&err)
	sub := step.Get(l.nextSubnet())
	end := func(of, peer *Host, number byte) (*Host, error) {
		inside := &Host{Name: of.Name + "-" + tunnelIf, Netns: of.Netns, IfName: tunnelIf}
		inside.V4, inside.V6 = sub.nth(number)
		return inside, tunnelEnd(of, peer, inside)
	}
	insideA = step.Get(end(a, b, 1))
	insideB, err = end(b, a, 2)
	return insideA, insideB, err
}

func tunnelEnd(of, peer, inside *Host) error {
	// The highest port of a range is not used. WireGuard encrypts, and sends, each packet by itself.
	return of.Netns.Run(fmt.Sprintf("ip link add %[1]s mtu %[2]d type vxlan id 1 local %[3]s remote %[4]s dstport %[5]d srcport %[5]d %[6]d nolearning\n",
		tunnelIf, tunnelMTU, of.V4, peer.V4, tunnelPort, tunnelPort+1) +
		configure(tunnelIf, inside.V4, inside.V6) + "ip link set " + tunnelIf + " gso_max_segs 1")
}
