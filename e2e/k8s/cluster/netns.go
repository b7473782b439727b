// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/rtnl"
)

// Netns is the network namespace of a pod or a node.
type Netns struct{ path string }

// Netns is the node's own.
func (n *Node) Netns() Netns { return Netns{fmt.Sprintf("/proc/%d/ns/net", n.pid)} }

// NetnsAt is the network namespace of a file on this machine.
func NetnsAt(file string) Netns { return Netns{file} }

// PodNetns finds the namespace of a pod by its address.
func (n *Node) PodNetns(ip netip.Addr) (_ Netns, err error) {
	defer step.End(&err)
	files := step.Get(filepath.Glob(n.Path("/run/netns/*")))
	for _, file := range files {
		ns, has := Netns{file}, false
		err := ns.Do(func() error {
			addrs, err := net.InterfaceAddrs()
			for _, a := range addrs {
				p, ok := a.(*net.IPNet)
				has = has || ok && p.IP.String() == ip.String()
			}
			return err
		})
		if err == nil && has {
			return ns, nil
		}
	}
	return Netns{}, fmt.Errorf("no namespace on %s has the address %s", n.Name, ip)
}

// Path is the file of the namespace, on this machine.
func (n Netns) Path() string { return n.path }

// Do runs f in the namespace. f must not start goroutines that expect it.
func (n Netns) Do(f func() error) (err error) {
	defer step.End(&err)
	ns := step.Get(rtnl.OpenNetNS(n.path))
	return errors.Join(ns.Do(f), ns.Close())
}

// Dial connects from the namespace. The connection stays in it, whoever uses it.
func (n Netns) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	// Long enough for a first packet that was lost, which is sent again after 1 s.
	d := net.Dialer{Timeout: 2500 * time.Millisecond}
	err = n.Do(func() (err error) {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
