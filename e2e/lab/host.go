// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"fmt"
	"net/netip"

	"github.com/podweir/podweir/e2e/step"
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
// pair of its own, and is reached by them: address 1 of the subnet is the node's, address 2
// the client's.
func (l *Lab) Client(name string) (_ *Host, err error) {
	defer step.End(&err)
	sub := step.Get(l.nextSubnet())
	ns, _, err := l.newNamespace("-" + name)
	step.OK(err)
	h, nodeIf := &Host{Name: name, Netns: ns, IfName: podIfName}, fmt.Sprintf("client%d", sub.index)
	h.V4, h.V6 = sub.nth(2)
	gw4, gw6 := sub.nth(1)
	err = l.node.Run("ip link add " + nodeIf + " type veth peer name " + podIfName + " netns " + ns.Name() + "\n" + configure(nodeIf, gw4, gw6))
	if err == nil {
		err = ns.Run(configure(podIfName, h.V4, h.V6) + fmt.Sprintf("ip route add default via %s\nip route add default via %s\n", gw4, gw6))
	}
	return h, err
}

// configure is a script that gives a device its addresses and sets it up.
func configure(ifName string, v4, v6 netip.Addr) string {
	return fmt.Sprintf("ip addr add %[2]s/24 dev %[1]s\nip addr add %[3]s/64 dev %[1]s nodad\nip link set %[1]s up\n", ifName, v4, v6)
}
