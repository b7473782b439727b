// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce

import (
	"errors"
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/status/view"
)

// Counters reads devices and podweir's own counters.
type Counters interface {
	// Begin begins a look: one dump of all devices on the host.
	Begin() error
	// Carried returns what a limit let through, since its device was made.
	Carried(l *reconcile.KeptLimit) (uint64, error)
	// Arrived returns what the pod's own device has received.
	Arrived(l *reconcile.KeptLimit) (uint64, error)
	// Passing returns for each limit what the pod's device carried, and what came by podweir
	// of that by each counter which shows it; none if that cannot be read.
	Passing(limits []*reconcile.KeptLimit) [][]view.Passing
	// Beside returns the bytes that podweir counted under these dispositions.
	Beside(l *reconcile.KeptLimit, dispositions []string) (uint64, error)
}

// errUnseen means that no device on the host shows what a limit lets through.
var errUnseen = errors.New("no device on the host shows it")

// Devices implements [Counters] over the network namespace that it was opened in. It
// keeps one socket. It is not safe for concurrent use.
type Devices struct {
	handle *hostif.Handle
	paths  engine.Paths
	netns  string
	dump   map[int]hostif.Traffic
	// pods are the numbers by which the host knows the pods' namespaces, by the
	// ifindexes of the devices on the host.
	pods map[int]int
}

// Open opens a socket in the namespace of a path, or of the caller if that is empty.
func Open(paths engine.Paths, netnsPath string) (*Devices, error) {
	k := &Devices{paths: paths, netns: netnsPath, pods: make(map[int]int)}
	var err error
	if netnsPath == "" {
		k.handle, err = hostif.NewHandle(nil)
		return k, err
	}
	ns, err := rtnl.OpenNetNS(netnsPath)
	if err != nil {
		return nil, err
	}
	k.handle, err = hostif.NewHandle(ns)
	return k, errors.Join(err, ns.Close())
}

// Close closes the socket.
func (k *Devices) Close() { k.handle.Close() }

// Begin implements [Counters].
func (k *Devices) Begin() error {
	dump, err := k.handle.Traffic()
	k.dump = dump
	for index := range k.pods {
		if _, there := dump[index]; !there {
			delete(k.pods, index)
		}
	}
	return err
}

// Carried implements [Counters].
func (k *Devices) Carried(l *reconcile.KeptLimit) (uint64, error) {
	c := counterOf(l)
	if c == counterNone {
		return 0, errUnseen
	}
	if c.onHost() {
		t, there := k.dump[l.Interface.HostIndex]
		if !there {
			return 0, fmt.Errorf("%s: %w", l.Interface.HostName, hostif.ErrNoDevice)
		}
		return c.of(t), nil
	}
	name := l.Interface.PodName
	if c == ifbReceived {
		name = hostif.IFBName(l.Interface.PodIndex)
	}
	t, err := k.inPod(l, name)
	return c.of(t), err
}

// Arrived implements [Counters].
func (k *Devices) Arrived(l *reconcile.KeptLimit) (uint64, error) {
	t, err := k.inPod(l, l.Interface.PodName)
	return t.ReceivedBytes, err
}

// inPod reads a device in the pod's namespace.
func (k *Devices) inPod(l *reconcile.KeptLimit, name string) (hostif.Traffic, error) {
	id, known := k.pods[l.Interface.HostIndex]
	if !known {
		dev, err := k.handle.InterfaceByIndex(l.Interface.HostIndex)
		if err != nil {
			return hostif.Traffic{}, err
		}
		id = dev.PeerNetNSID
		k.pods[l.Interface.HostIndex] = id
	}
	t, _, err := k.handle.TrafficIn(id, name)
	return t, err
}

// Beside implements [Counters].
func (k *Devices) Beside(l *reconcile.KeptLimit, dispositions []string) (uint64, error) {
	node, err := engine.Open(k.paths)
	if err != nil {
		return 0, err
	}
	defer node.Close()
	records, err := node.Records(l.ID)
	if err != nil {
		return 0, err
	}
	for _, r := range records {
		if r.Interface.PodName != l.Interface.PodName {
			continue
		}
		counters, err := node.Counters(r, l.Direction.Is)
		if err != nil {
			return 0, err
		}
		sum := uint64(0)
		for _, c := range counters {
			if slices.Contains(dispositions, c.Disposition) {
				sum += c.Bytes
			}
		}
		return sum, nil
	}
	return 0, fmt.Errorf("%v: no record of %s", l.ID, l.Interface.PodName)
}
