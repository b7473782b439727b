// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"time"

	"github.com/podweir/podweir/e2e/aws/imds"
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/step"
)

// The VPC's networks beside those of the cluster: IPv6, and what second network
// interfaces have.
var (
	vpcIPv6       = netip.MustParsePrefix("fd50:7765:6972::/56")
	secondSubnets = netip.MustParsePrefix("10.78.0.0/16")
)

// ipv6 are a node's address with its subnet, and the prefix of its pods.
func ipv6(n *cluster.Node) (node, pods netip.Prefix) {
	subnet, prefix, v4 := vpcIPv6.Addr().As16(), vpcIPv6.Addr().As16(), n.IP.As4()
	copy(subnet[12:], v4[:])
	prefix[7] = v4[3]
	return netip.PrefixFrom(netip.AddrFrom16(subnet), 64), netip.PrefixFrom(netip.AddrFrom16(prefix), 80)
}

// eth1 is a node's second network interface, without its MAC address.
func eth1(n *cluster.Node) imds.Interface {
	address, last := secondSubnets.Addr().As4(), n.IP.As4()[3]
	pods := address
	address[3], pods[2] = last, last
	return imds.Interface{
		Address: netip.AddrFrom4(address),
		Subnet:  netip.PrefixFrom(secondSubnets.Addr(), 24), Pods: netip.PrefixFrom(netip.AddrFrom4(pods), 24),
	}
}

// hostIP is the node's address of the pods' family.
func (v *vpc) hostIP(n *cluster.Node) netip.Addr {
	if v.ipv6 {
		node, _ := ipv6(n)
		return node.Addr()
	}
	return n.IP
}

// connect gives nodes the VPC's routes to the pods of the others.
func (v *vpc) connect(ctx context.Context) error {
	errs := []error{v.cluster.Connect(ctx)}
	if v.twoCards {
		errs = append(errs, v.wire(ctx))
	}
	for _, from := range v.cluster.Members {
		var script string
		if v.ipv6 {
			node, _ := ipv6(from)
			script = "sysctl -qw net.ipv6.conf.all.disable_ipv6=0; ip address replace " + node.String() + " dev eth0 nodad\n"
		}
		for _, to := range v.cluster.Members {
			if from == to {
				continue
			}
			if v.ipv6 {
				node, pods := ipv6(to)
				script += fmt.Sprintf("ip route replace %s via %s\n", pods, node.Addr())
			}
			if v.twoCards {
				// The other node is the subnet's router, too: of the first address.
				second := eth1(to)
				script += fmt.Sprintf("ip route replace %s via %s dev eth1 onlink\n", second.Pods, second.Address)
				for _, a := range []netip.Addr{second.Address, second.Subnet.Addr().Next()} {
					script += fmt.Sprintf("ip neighbour replace %s lladdr %s dev eth1\n", a, mac(to))
				}
			}
		}
		_, err := from.Exec(ctx, "bash", "-ec", script)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// mac is that of a node's second network interface.
func mac(n *cluster.Node) string { return fmt.Sprintf("02:00:00:00:01:%02x", n.IP.As4()[3]) }

// wire connects the second network interfaces of two nodes. An earlier pair goes with the
// network namespace of either node.
func (v *vpc) wire(ctx context.Context) error {
	a, b := v.cluster.Members[0], v.cluster.Members[1]
	out, err := exec.CommandContext(ctx, "ip", "link", "add", "eth1", "address", mac(a), "netns", fmt.Sprint(a.PID()),
		"type", "veth", "peer", "name", "eth1", "address", mac(b), "netns", fmt.Sprint(b.PID())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("second network interfaces: %w: %s", err, out)
	}
	for _, n := range []*cluster.Node{a, b} {
		// Answers to what comes in by eth1 may leave by eth0, so rp_filter is loose. ipamd writes
		// ipam.json when the first pod comes. Without it the Network Policy Agent ends at its start.
		const script = `ip link set eth1 up; sysctl -qw net.ipv4.conf.eth1.rp_filter=2
mkdir -p /run/aws-node; [ -e /run/aws-node/ipam.json ] || echo '{"version": "vpc-cni-ipam/1", "allocations": []}' >/run/aws-node/ipam.json`
		if _, err := n.Exec(ctx, "bash", "-ec", script); err != nil {
			return err
		}
	}
	return nil
}

// serve starts the metadata service of a node, in its network namespace.
func (v *vpc) serve(ctx context.Context, n *cluster.Node) (err error) {
	defer step.End(&err)
	if old := v.metadata[n.Name]; old != nil {
		_ = old.Close()
	}
	address, _, err := net.SplitHostPort(imds.Listen)
	step.OK(err)
	step.Get(n.Exec(ctx, "ip", "address", "replace", address+"/32", "dev", "lo"))
	var devices []net.Interface
	var listener net.Listener
	err = n.Netns().Do(func() (err error) {
		if devices, err = net.Interfaces(); err != nil {
			return err
		}
		// The socket stays in the namespace, whoever accepts.
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", imds.Listen)
		return err
	})
	step.OK(err)
	instance, err := v.describe(n, devices)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: instance.Handler(), ReadHeaderTimeout: 5 * time.Second}
	v.metadata[n.Name] = server
	go func() { _ = server.Serve(listener) }() // until close
	return nil
}

// describe says what EC2 would of a node.
func (v *vpc) describe(n *cluster.Node, devices []net.Interface) (_ *imds.Instance, err error) {
	defer step.End(&err)
	subnet := step.Get(n.IP.Prefix(24))
	pods := step.Get(netip.ParsePrefix(n.PodCIDR))
	eth0 := imds.Interface{Address: n.IP, Subnet: subnet, Pods: pods}
	if v.ipv6 {
		eth0.IPv6, eth0.PodsIPv6 = ipv6(n)
	}
	i := &imds.Instance{
		Name: n.Name,
		// What is not in it gets the node's address.
		VPC: []netip.Prefix{
			netip.MustParsePrefix(cluster.PodCIDR), subnet, netip.MustParsePrefix(cluster.ServiceCIDR), secondSubnets,
		},
		VPCIPv6: vpcIPv6,
	}
	i.Interfaces = []imds.Interface{eth0}
	if v.twoCards {
		i.Interfaces = append(i.Interfaces, eth1(n))
	}
	for card := range i.Interfaces {
		at := slices.IndexFunc(devices, func(d net.Interface) bool { return d.Name == fmt.Sprintf("eth%d", card) })
		if at < 0 {
			return nil, fmt.Errorf("%s has no eth%d", n.Name, card)
		}
		i.Interfaces[card].MAC = devices[at].HardwareAddr.String()
	}
	return i, nil
}

// close ends what is served to the nodes.
func (v *vpc) close() error {
	var errs []error
	for _, server := range v.metadata {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}
