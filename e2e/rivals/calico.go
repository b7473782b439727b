// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rivals

import (
	"errors"
	"math"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
)

const (
	// CalicoBurst is Calico's burst, in bits, where no annotation sets one
	// (defaultBurst in libcalico-go/lib/backend/k8s/conversion/workload_endpoint_default.go).
	CalicoBurst = 4 << 30
	// calicoLatency is latencyMillis of Felix's qos.go, in seconds.
	calicoLatency = 0.025
	// ifbPrefix and ifNameMost make the name of the ifb; Felix has a hash of the
	// device's name behind the prefix.
	ifbPrefix  = "bwcali"
	ifNameMost = unix.IFNAMSIZ - 1
)

// Calico gives a pod's host side, on which nothing is yet, the queues that Calico's agent
// since v3.30 wants there for a limit of both directions in bits per second, without a burst
// of the pod's own. The double copies the effect of these functions of
// felix/dataplane/linux/qos/qos.go at 04baf82929c4, which maybeUpdateQoSBandwidth
// (qos_controls.go beside the endpoint manager) calls whenever a pod's endpoint changes:
//
//	CreateOrUpdateIngressQdisc, createOrUpdateTBF, makeTBF   ingress
//	AddEgressQdisc, CreateIfb, CreateEgressQdisc             egress
//	GetTBFValues                                             bucket
//
// The ifb stays until the namespace goes.
func Calico(node *lab.Netns, ifName string, bitsPerSec uint64) error {
	return node.Do(func() error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		return errors.Join(netlink.QdiscReplace(bucket(link, bitsPerSec)), redirected(link, bitsPerSec))
	})
}

// redirected sends what the pod sends to an ifb with a bucket.
func redirected(link netlink.Link, bitsPerSec uint64) error {
	attrs := netlink.NewLinkAttrs()
	name := link.Attrs().Name
	attrs.Name = ifbPrefix + name[max(0, len(name)-(ifNameMost-len(ifbPrefix))):]
	attrs.Flags, attrs.MTU = net.FlagUp, link.Attrs().MTU
	if err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: attrs}); err != nil {
		return err
	}
	ifb, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return err
	}
	hook := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}
	filter := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: hook.Handle, Priority: 1, Protocol: unix.ETH_P_ALL},
		ClassId:     netlink.MakeHandle(1, 1),
		Actions:     []netlink.Action{netlink.NewMirredAction(ifb.Attrs().Index)},
	}
	return errors.Join(netlink.QdiscReplace(hook), netlink.FilterAdd(filter), netlink.QdiscReplace(bucket(ifb, bitsPerSec)))
}

// bucket is what makeTBF and GetTBFValues make of a limit: 25 ms of the rate behind a
// bucket in ticks, cut off at 32 bits.
func bucket(link netlink.Link, bitsPerSec uint64) *netlink.Tbf {
	bytesPerSec := bitsPerSec / 8
	usec := min(CalicoBurst/8*1e6/float64(bytesPerSec), math.MaxUint32)
	buffer := min(usec*netlink.TickInUsec(), math.MaxUint32)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       bytesPerSec, Buffer: uint32(buffer),
		Limit: uint32(min(float64(bytesPerSec)*calicoLatency+buffer, math.MaxUint32)),
	}
}
