// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"slices"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/terms"
)

// Others returns the interfaces of pods that no record tells of: veth and netkit devices
// whose other end is in another namespace, without those with a default route, by which the
// node reaches others; and of the namespaces that are given devices without an end on the
// host (macvlan, hardware). It needs no state of podweir's.
func (p Paths) Others(netnsPaths []string) ([]terms.Device, error) {
	records, k, err := p.look()
	if err != nil {
		return nil, err
	}
	defer k.close()
	devices, err := k.host.Interfaces()
	if err != nil {
		return nil, err
	}
	// A device with an address alone may be a pod's: its gateway's.
	uplinks, err := k.host.DefaultRoutes()
	if err != nil {
		return nil, err
	}
	traffic, err := k.host.Traffic()
	if err != nil {
		return nil, err
	}
	paths := k.namespaces(netnsPaths)
	all := []terms.Device{}
	for i := range devices {
		d := &devices[i]
		if !isPair(d) || uplinks[d.Index] {
			continue
		}
		if limited, err := k.recordOf(records[d.Index], d); err != nil {
			return nil, err
		} else if limited != nil {
			continue
		}
		t := traffic[d.Index]
		all = append(all, terms.Device{Name: d.Name, NetNSPath: paths[d.PeerNetNSID], EgressBytes: t.ReceivedBytes, IngressBytes: t.SentBytes})
	}
	for _, path := range netnsPaths {
		alone, err := k.alone(path, records[0])
		if err != nil {
			return nil, err
		}
		all = append(all, alone...)
	}
	return all, nil
}

// alone are the interfaces of a pod that have no other end on the host, without those of
// records.
func (k *kernel) alone(path string, limited []*apply.Record) (all []terms.Device, err error) {
	p, err := k.pod(path)
	if err != nil || p.ns.Same(k.hostNS) {
		return nil, nil //nolint:nilerr // it is gone
	}
	devices, err := p.handle.Interfaces()
	if err != nil {
		return nil, err
	}
	devices = slices.DeleteFunc(devices, func(d hostif.Interface) bool {
		return !d.LeadsOutAlone() || slices.ContainsFunc(limited, func(r *apply.Record) bool {
			return d.Index == r.Interface.PodIndex && p.holds(&r.Interface)
		})
	})
	if len(devices) == 0 {
		return nil, nil
	}
	traffic, err := p.handle.Traffic()
	for i := range devices {
		t := traffic[devices[i].Index]
		all = append(all, terms.Device{Name: devices[i].Name, NetNSPath: path, EgressBytes: t.SentBytes, IngressBytes: t.ReceivedBytes})
	}
	return all, err
}

// Beside names devices of a pod that share a device of the node with one of its interfaces
// (macvlan, ipvlan), so that they reach the same network, and that no attachment holds.
func (n *Node) Beside(r *apply.Record) (names []string, err error) {
	i := &r.Interface
	if i.HostIndex != 0 {
		return nil, nil
	}
	p, err := n.kernel.podOf(i)
	if p == nil || err != nil {
		return nil, err
	}
	devices, err := p.handle.Interfaces()
	at := slices.IndexFunc(devices, func(d hostif.Interface) bool { return d.Index == i.PodIndex })
	if err != nil || at < 0 {
		return nil, err
	}
	for j := range devices {
		d := &devices[j]
		if j == at || !d.Shares(&devices[at]) {
			continue
		}
		other := attach.Interface{NetNSInode: p.ns.Inode(), NetNSCookie: p.cookie, PodName: d.Name, PodIndex: d.Index}
		if holder, err := n.store.Another(attach.ID{}, &other); err != nil {
			return nil, err
		} else if holder == nil {
			names = append(names, d.Name)
		}
	}
	return names, nil
}

// namespaces are the paths of namespaces by the numbers that the host knows them by. What
// is gone is left out.
func (k *kernel) namespaces(paths []string) map[int]string {
	all := make(map[int]string)
	for _, path := range paths {
		p, err := k.pod(path)
		if err != nil {
			continue
		}
		if id, err := k.host.NetNSID(p.ns); err == nil && id != hostif.NoNetNSID {
			all[id] = path
		}
	}
	return all
}
