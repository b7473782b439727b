// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package rivals

import (
	"errors"
	"fmt"
	"math"

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
	ifb := ifbPrefix + ifName[max(0, len(ifName)-(ifNameMost-len(ifbPrefix))):]
	err := node.Run(fmt.Sprintf(`ip link add %[2]s type ifb
ip link set %[2]s up
tc qdisc replace dev %[1]s ingress
tc filter add dev %[1]s ingress prio 1 protocol all u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev %[2]s`, ifName, ifb))
	if err != nil {
		return err
	}
	return node.Do(func() error {
		var errs []error
		for _, name := range []string{ifName, ifb} {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.QdiscReplace(bucket(link, bitsPerSec))
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
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
