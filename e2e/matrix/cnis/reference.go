// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cnis

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/matrix/row"
)

// reference is a network of reference plugins. It has no daemon: routes between
// the nodes are made by hand, as by the administrator of such a cluster.
type reference struct {
	lines

	row *row.Row
	// main is the first plugin for pods of a node.
	main func(n *cluster.Node) cluster.Plugin
	// device is what the plugins leave on a node when the last pod is gone.
	device string
	// routed networks need routes to the pods of other nodes.
	routed  bool
	cluster *cluster.Cluster
}

// variantHas looks for a word in a row's variant: plugins that are chained, and
// what changes the first one.
func variantHas(r *row.Row, word string) bool {
	return slices.Contains(strings.FieldsFunc(r.Variant, func(c rune) bool { return c == ',' || c == ' ' }), word)
}

func newPtp(r *row.Row) CNI {
	return &reference{lines: lines{lastAddress}, row: r, routed: true, main: (*cluster.Node).Ptp}
}

func newBridge(r *row.Row) CNI {
	return &reference{
		lines: lines{lastAddress}, row: r, routed: true, device: "cni0",
		main: func(n *cluster.Node) cluster.Plugin {
			p := cluster.Plugin{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": variantHas(r, "hairpin"), "ipam": n.HostLocal()}
			if variantHas(r, "VLAN") {
				p["vlan"] = 100
			}
			return p
		},
	}
}

// newLayered is macvlan or ipvlan on the nodes' own network: pods of all nodes
// share one segment, so there are no routes.
func newLayered(r *row.Row) CNI {
	return &reference{
		lines: lines{lastAddress}, row: r,
		main: func(n *cluster.Node) cluster.Plugin {
			return cluster.Plugin{"type": r.CNI, "master": "eth0", "ipam": cluster.Plugin{
				"type":   "host-local",
				"ranges": [][]cluster.Plugin{{{"subnet": "10.77.0.0/16", "rangeStart": first(n, 10), "rangeEnd": first(n, 200)}}},
			}}
		},
	}
}

// first is an address in the node's part of the segment.
func first(n *cluster.Node, last byte) string {
	a := netip.MustParsePrefix(n.PodCIDR).Addr().As4()
	a[3] = last
	return netip.AddrFrom4(a).String()
}

// conflist has what the variant names behind the first plugin.
func (p *reference) conflist(n *cluster.Node) string {
	plugins := []cluster.Plugin{p.main(n)}
	for _, behind := range [][2]string{{"portmap", "portMappings"}, {"bandwidth", "bandwidth"}} {
		if variantHas(p.row, behind[0]) {
			plugins = append(plugins, cluster.Plugin{"type": behind[0], "capabilities": map[string]bool{behind[1]: true}})
		}
	}
	return cluster.Conflist(plugins...)
}

// Install writes the conflist and the routes of each node.
func (p *reference) Install(ctx context.Context, c *cluster.Cluster) error {
	p.cluster = c
	for _, n := range c.Members {
		if err := n.WriteFile(cluster.ConflistFile, p.conflist(n)); err != nil {
			return err
		}
	}
	return p.Booted(ctx, nil)
}

// Ready has nothing to wait for but the nodes.
func (p *reference) Ready(context.Context, *cluster.Cluster) error { return nil }

// Booted makes the routes to other nodes' pods.
func (p *reference) Booted(ctx context.Context, _ *cluster.Node) error {
	if !p.routed {
		return nil
	}
	return p.cluster.Connect(ctx)
}

// Conflist is the file of the network.
func (p *reference) Conflist() string { return cluster.ConflistFile }

// Uninstall removes files, devices, routes and the books of host-local.
func (p *reference) Uninstall(ctx context.Context, c *cluster.Cluster) error {
	script := "rm -rf " + cluster.ConflistFile + " /var/lib/cni"
	if p.device != "" {
		script += fmt.Sprintf(" && { ! ip link show %[1]s >/dev/null 2>&1 || ip link delete %[1]s; }", p.device)
	}
	if p.routed {
		script += " && ip route flush root " + cluster.PodCIDR
	}
	return onEach(ctx, c, script)
}

// onEach runs a script on each node.
func onEach(ctx context.Context, c *cluster.Cluster, script string) error {
	var errs []error
	for _, n := range c.Members {
		_, err := n.Exec(ctx, "bash", "-c", script)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
