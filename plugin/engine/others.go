// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"github.com/podweir/podweir/plugin/hostif"
)

// Other is the host's end of a pod's interface that podweir has no limit on.
type Other struct {
	Name string `json:"device"`
	// NetNSPath is that of the pod's network namespace, "" if it is none of those that were
	// given.
	NetNSPath string `json:"netns,omitempty"`
	// EgressBytes and IngressBytes are what the pod sent and received since the device was made.
	EgressBytes  uint64 `json:"egressBytes"`
	IngressBytes uint64 `json:"ingressBytes"`
}

// Others returns the veth and netkit devices that no record tells of and whose other end is
// in another namespace, without those with a default route: by those the node reaches
// others. It needs no state of podweir's.
func (p Paths) Others(netnsPaths []string) ([]Other, error) {
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
	paths := namespaces(k.host, netnsPaths)
	all := []Other{}
	for i := range devices {
		d := &devices[i]
		if _, limited := records[d.Index]; limited || !isPair(d) || uplinks[d.Index] {
			continue
		}
		t := traffic[d.Index]
		all = append(all, Other{Name: d.Name, NetNSPath: paths[d.PeerNetNSID], EgressBytes: t.ReceivedBytes, IngressBytes: t.SentBytes})
	}
	return all, nil
}

// namespaces are the paths of namespaces by the numbers that the host knows them by. What
// is gone is left out.
func namespaces(host *hostif.Handle, paths []string) map[int]string {
	all := make(map[int]string)
	for _, path := range paths {
		ns, err := hostif.OpenNetNS(path)
		if err != nil {
			continue
		}
		if id, err := host.NetNSID(ns); err == nil && id != hostif.NoNetNSID {
			all[id] = path
		}
		_ = ns.Close()
	}
	return all
}
