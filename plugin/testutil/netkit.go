// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package testutil

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/hostif"
)

// NetkitPair makes a netkit pair as a CNI plugin does, its primary end on the
// host, up and with their addresses. With l3 the ends have no link layer
// address and no neighbours. It skips the test on a kernel without netkit
// (before 6.7).
func NetkitPair(tb testing.TB, pod, host End, l3 bool) (podIf, hostIf hostif.Interface) {
	tb.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = host.Name
	pair := &netlink.Netkit{LinkAttrs: attrs, Mode: netlink.NETKIT_MODE_L2, Scrub: netlink.NETKIT_SCRUB_DEFAULT, PeerScrub: netlink.NETKIT_SCRUB_DEFAULT}
	if l3 {
		pair.Mode = netlink.NETKIT_MODE_L3
	}
	peer := netlink.NewLinkAttrs()
	peer.Name, peer.Namespace = pod.Name, netlink.NsFd(pod.NetNS.FD())
	pair.SetPeerAttrs(&peer)
	h, err := netlink.NewHandleAt(netns.NsHandle(host.NetNS.FD()))
	if err != nil {
		tb.Fatal(err)
	}
	defer h.Close()
	if err := h.LinkAdd(pair); errors.Is(err, unix.EOPNOTSUPP) {
		SkipFeature(tb, "netkit")
	} else if err != nil {
		tb.Fatalf("make netkit pair: %v", err)
	}
	for _, e := range []End{pod, host} {
		for _, c := range e.CIDRs {
			e.NetNS.AddAddr(tb, e.Name, c)
		}
		e.NetNS.Up(tb, e.Name)
	}
	return pod.NetNS.Interface(tb, pod.Name), host.NetNS.Interface(tb, host.Name)
}
