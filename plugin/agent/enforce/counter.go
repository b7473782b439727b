// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce

import (
	"slices"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/hostif"
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

// uncharged says that the policy does not charge all traffic.
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
