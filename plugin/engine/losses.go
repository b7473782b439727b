// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"errors"
	"fmt"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/judge"
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
	return losses(ns, h)
}

// losses are those of one namespace, with XDP programs: none has a counter of its own.
func losses(ns *rtnl.NetNS, h *hostif.Handle) ([]terms.Loss, error) {
	all, err := hostif.Losses(ns, h)
	devices, failed := h.Interfaces()
	for i := range devices {
		if x := datapath.ReadXDP(devices[i].XDP); x != nil && x.Answer != judge.AnswerNext {
			all = append(all, terms.Loss{Where: fmt.Sprintf("%v on %s", *x, devices[i].Name), Uncounted: true, Past: x.Answer != judge.AnswerDrops})
		}
	}
	return all, errors.Join(err, failed)
}

// Losses are those of [Paths.Losses], and of the namespaces of pods with these records. Beside an error they are those
// that could be read.
func (n *Node) Losses(pods ...*apply.Record) ([]terms.Loss, error) {
	all, failed := losses(n.kernel.hostNS, n.kernel.host)
	for _, r := range pods {
		p, err := n.kernel.podOf(&r.Interface)
		if p != nil {
			var inPod []terms.Loss
			inPod, err = losses(p.ns, p.handle)
			for _, l := range inPod {
				l.Where += " in the pod"
				all = append(all, l)
			}
		}
		failed = errors.Join(failed, err)
	}
	return all, failed
}

// Path says what is wrong with the devices on a pod's way, "" if nothing is: both ends are to be up, the end on the host
// has to take what the pod sends, and the node's uplinks should. An end that is out of reach is left out, and its MTU is
// what it was.
func (n *Node) Path(i *attach.Interface) (string, error) {
	host, err := n.kernel.hostEnd(i)
	if err != nil {
		return "", err
	}
	p, err := n.kernel.podOf(i)
	if p != nil {
		var own hostif.Interface
		if own, err = p.handle.InterfaceByIndex(i.PodIndex); err == nil && !own.Up {
			return i.Name() + " in the pod is down", nil
		}
	}
	lost := ": larger packets are lost"
	switch {
	case host == nil && (p == nil || err != nil):
		return "", err
	case host != nil && !host.Up:
		return host.Name + " is down", nil
	case host != nil && host.MTU != i.MTU:
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
