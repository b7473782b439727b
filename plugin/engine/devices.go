// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// PodDevice is the host's end of a pod's interface, as it is.
type PodDevice struct {
	attach.Device
	// NetNSID is the host's number of the namespace of the other end.
	NetNSID int
	// Egress are the qdiscs of the devices that filters send the pod's packets to.
	Egress []shaping.Qdisc
}

// PodDevices returns the veth and netkit devices whose other end is in another
// namespace, without those that the node itself reaches others by: in a node that is
// a container, as kind's, its uplink looks as a pod's device does. What podweir has
// shaped is a pod's, whatever it looks like. It looks at the namespace that it runs in,
// and needs no state of podweir's.
func (p Paths) PodDevices() ([]PodDevice, error) {
	records, k, err := p.look()
	if err != nil {
		return nil, err
	}
	defer k.close()
	k.shows = true
	all, err := k.host.Interfaces()
	if err != nil {
		return nil, err
	}
	uplinks, err := k.host.Uplinks()
	if err != nil {
		return nil, err
	}
	var out []PodDevice
	for i := range all {
		one := &all[i]
		if !isPair(one) {
			continue
		}
		record, err := k.recordOf(records[one.Index], one)
		if err != nil {
			return nil, err
		}
		if uplinks[one.Index] && record == nil {
			continue
		}
		at := &place{device: device{k.host, one.Index}, ns: k.hostNS, side: terms.SideHost, link: *one}
		if record != nil {
			at.majors = record.Choices[terms.Ingress].Majors
		}
		seen, err := k.observeDevice(at, nil)
		if errors.Is(err, hostif.ErrNoDevice) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at device %s: %w", one.Name, err)
		}
		pod := PodDevice{Device: *seen, NetNSID: one.PeerNetNSID}
		for _, p := range seen.Chain(terms.SideHost, terms.HookIngress).Programs {
			at.index = p.RedirectIndex
			if behind, err := k.observeQueue(at); err == nil && at.index != 0 {
				pod.Egress = append(pod.Egress, behind.Tree.Qdiscs...)
			}
		}
		out = append(out, pod)
	}
	return out, nil
}

// recordOf returns the record of the interface whose host end a device is, nil if there is
// none.
func (k *kernel) recordOf(records []*apply.Record, dev *hostif.Interface) (*apply.Record, error) {
	for _, r := range records {
		if is, err := k.isHostEnd(&r.Interface, dev); is || err != nil {
			return r, err
		}
	}
	return nil, nil
}

// QueueKinds are the kinds of all qdiscs on devices of the namespace that it runs in, by
// the devices' names. Devices that are not there are left out.
func (p Paths) QueueKinds(names []string) (map[string][]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	h, err := hostif.NewHandle(nil)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	all, err := h.Interfaces()
	if err != nil {
		return nil, err
	}
	list, err := queue.List(h)
	if err != nil {
		return nil, err
	}
	kinds := make(map[string][]string)
	for i := range all {
		if slices.Contains(names, all[i].Name) {
			kinds[all[i].Name] = list.Kinds(all[i].Index)
		}
	}
	return kinds, nil
}

// look opens the kernel's interfaces, and returns the records by the index of the host-side
// device.
func (p Paths) look() (map[int][]*apply.Record, *kernel, error) {
	byIndex := make(map[int][]*apply.Record)
	n, err := Open(p)
	if errors.Is(err, ErrNoState) {
		k, err := newKernel(p, nil)
		return byIndex, k, err
	}
	if err != nil {
		return nil, nil, err
	}
	records, err := n.records()
	if err != nil {
		n.Close()
		return nil, nil, err
	}
	for _, r := range records {
		byIndex[r.Interface.HostIndex] = append(byIndex[r.Interface.HostIndex], r)
	}
	return byIndex, n.kernel, nil
}

// records are all that this release can read.
func (n *Node) records() ([]*apply.Record, error) { return n.store.all() }

func (s *store) all() ([]*apply.Record, error) {
	ids, err := s.pins.List()
	if err != nil {
		return nil, err
	}
	var all []*apply.Record
	for _, id := range ids {
		records, err := s.Records(id)
		if err != nil && !errors.Is(err, apply.ErrUnknownRecord) {
			return nil, err
		}
		all = append(all, records...)
	}
	return all, nil
}
