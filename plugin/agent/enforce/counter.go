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
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// counter is which counter of which device tells what a limit let through. It has to be
// behind the queue, where nothing that is dropped is counted, and before whatever else
// drops.
//
// veth counts a packet when it hands it to the other end (veth_xmit): for the one end
// as sent, for the other as received. That is behind the root qdisc and the egress
// hooks of the end that sends, and before the ingress hooks of the other.
type counter uint8

const (
	// counterNone: there is no device on the host that shows it.
	counterNone counter = iota
	// hostReceived: egress, for which the queue is on the pod's side. It is before the
	// host side's ingress hook: what the ceiling drops, or a policer there, is counted,
	// and taken off by podweir's own counters.
	hostReceived
	// hostSent: ingress with the queue, or a policer, on the host side. What
	// bpf_redirect_peer hands to the pod does not come by: see [arrives].
	hostSent
	// podSent: egress of a netkit pair, whose host side does not count what the
	// programs inside its transmit function redirect.
	podSent
	// podReceived: ingress that is policed at the pod's side. It is before the hook.
	podReceived
	// ifbReceived: ingress with the queue on an ifb. An ifb counts as received what its
	// own qdisc has let out (ifb_xmit). What does not come to the ifb is not counted:
	// that the redirect is in place is looked at, not measured.
	ifbReceived
)

// onHost says that the dump of the host's devices has it.
func (c counter) onHost() bool { return c == hostReceived || c == hostSent }

func (c counter) of(t hostif.Traffic) uint64 {
	if c == hostSent || c == podSent {
		return t.SentBytes
	}
	return t.ReceivedBytes
}

func counterOf(l *reconcile.KeptLimit) counter {
	netkit := l.Interface.Kind == terms.DeviceNetkit
	switch {
	case l.Interface.HostIndex == 0:
		return counterNone
	case l.Direction.Is == terms.Egress && netkit:
		return podSent
	case l.Direction.Is == terms.Egress:
		return hostReceived
	case l.Side.Is == terms.SideIFB:
		return ifbReceived
	case l.Side.Is == terms.SidePod:
		return podReceived
	default:
		return hostSent
	}
}

// arrives says that what the pod's own device received may be more than the counter has,
// and that all of it should be within the limit: bpf_redirect_peer counts there only
// (skb_do_redirect, since Linux 6.7). That device is not in the host's dump, so it is
// read by itself, and not with each look.
func arrives(l *reconcile.KeptLimit) bool { return counterOf(l) == hostSent && len(besides(l)) == 0 }

// besides are podweir's own counters of what the device's counter has and the limit does
// not: what is dropped behind it, and what the policy does not charge. They count the
// headers of each segment, so that they are rather too large: then less is said to be
// beyond the limit than there is.
func besides(l *reconcile.KeptLimit) []string {
	var names []string
	if uncharged(l) {
		names = append(names, "exempt")
	}
	if l.Policy.Is == terms.PolicyElephants {
		names = append(names, "light")
	}
	if l.Ceiling {
		names = append(names, "dropped-ceiling")
	}
	atIngressHook := (l.Direction.Is == terms.Egress) == (l.Side.Is == terms.SideHost)
	if l.Queue.Is == terms.QueueNone && atIngressHook {
		names = append(names, "dropped-policed", "dropped-early")
	}
	return names
}

func uncharged(l *reconcile.KeptLimit) bool { return l.Exempt || l.Policy.Is == terms.PolicyElephants }

// inFlight is what may wait between a veth's counter and its ingress hook: the backlog
// of a processor (net.core.netdev_max_backlog, 1,000 packets by default), in full frames
// and some.
const inFlight units.Bytes = 2_000_000

// watched is what a limit lets through.
func watched(l *reconcile.KeptLimit) Allowed {
	return Allowed{
		Rate: l.Rate, Excess: l.Allowance.Excess, AtOnce: l.Allowance.AtOnce, InFlight: inFlight,
		Credited: len(besides(l)) > 0, Uncharged: uncharged(l),
	}
}

// same says that two limits are kept in the same way.
func same(a, b *reconcile.KeptLimit) bool {
	return a.Interface == b.Interface && a.Side == b.Side && a.Queue == b.Queue && a.Policy == b.Policy &&
		watched(a) == watched(b) && slices.Equal(besides(a), besides(b))
}

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

// Devices implements [Counters] over the network namespace that it is opened and used in. It
// keeps one socket. It is not safe for concurrent use.
type Devices struct {
	handle *hostif.Handle
	paths  engine.Paths
	dump   map[int]hostif.Traffic
	// pods are the numbers by which the host knows the pods' namespaces, by the
	// ifindexes of the devices on the host.
	pods map[int]int
}

// Open opens a socket in the namespace of the caller.
func Open(paths engine.Paths) (*Devices, error) {
	handle, err := hostif.NewHandle(nil)
	return &Devices{handle: handle, paths: paths, pods: make(map[int]int)}, err
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
	name := l.Interface.Name()
	if c == ifbReceived {
		name = hostif.IFBName(l.Interface.PodIndex)
	}
	t, err := k.inPod(l, name)
	return c.of(t), err
}

// Arrived implements [Counters].
func (k *Devices) Arrived(l *reconcile.KeptLimit) (uint64, error) {
	t, err := k.inPod(l, l.Interface.Name())
	return t.ReceivedBytes, err
}

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
