// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"fmt"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// Losses are the places of the node where packets are lost that podweir has nothing to do
// with. It needs no state of podweir's. Each rule of nftables is read: it is for commands of people.
func (p Paths) Losses() ([]terms.Loss, error) {
	ns, err := rtnl.CurrentNetNS()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	h, err := hostif.NewHandle(nil)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return hostif.Losses(ns, h)
}

// Losses are those of [Paths.Losses], and of the namespaces of pods with these records.
func (n *Node) Losses(pods ...*apply.Record) ([]terms.Loss, error) {
	all, err := hostif.Losses(n.kernel.hostNS, n.kernel.host)
	if err != nil {
		return nil, err
	}
	for _, r := range pods {
		p, err := n.kernel.podOf(&r.Interface)
		if err != nil || p == nil {
			return all, err
		}
		inPod, err := hostif.Losses(p.ns, p.handle)
		if err != nil {
			return all, err
		}
		for _, l := range inPod {
			l.Where += " in the pod"
			all = append(all, l)
		}
	}
	return all, nil
}

// Path says what is wrong with the devices on a pod's way, "" if nothing is: both ends are to be up, the end on the host
// has to take what the pod sends, and the node's uplinks should.
func (n *Node) Path(i *attach.Interface) (string, error) {
	host, err := n.kernel.host.InterfaceByIndex(i.HostIndex)
	if err != nil {
		return "", err
	}
	p, err := n.kernel.podOf(i)
	if p == nil || err != nil {
		return "", err
	}
	own, err := p.handle.InterfaceByIndex(i.PodIndex)
	lost := ": larger packets are lost"
	switch {
	case err != nil:
		return "", err
	case !own.Up:
		return i.Name() + " in the pod is down", nil
	case !host.Up:
		return host.Name + " is down", nil
	case host.MTU != i.MTU:
		return fmt.Sprintf("%s in the pod has an MTU of %d, and its other end %s one of %d", i.Name(), i.MTU, host.Name, host.MTU) + lost, nil
	}
	uplinks, err := n.kernel.host.Uplinks()
	for index := range uplinks {
		up, err := n.kernel.host.InterfaceByIndex(index)
		if err == nil && up.Name != "lo" && up.MTU < i.MTU && index != i.HostIndex {
			return fmt.Sprintf("%s in the pod has an MTU of %d, and %s of the node one of %d", i.Name(), i.MTU, up.Name, up.MTU) + lost, nil
		}
	}
	return "", err
}
