// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package hostif

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
)

// Of linux/rtnetlink.h: the lengths of struct rtmsg, struct rtnexthop and struct
// ifaddrmsg, and where the fields are that are read here.
const (
	rtmsgLen, rtmsgDstLen, rtmsgTable, rtmsgType = 12, 1, 4, 7

	nexthopLen, nexthopIndex, nexthopAlign = 8, 4, 4

	ifaddrLen, ifaddrPrefix, ifaddrScope, ifaddrIndex = 8, 1, 3, 4
)

// Uplinks returns the ifindexes of the devices by which the namespace itself
// reaches others: those with a default route of the main table, and those with
// an address of a network. A pod's host-side device has neither: what it has, if
// anything, is the address of a gateway by itself (/32), or one of the link only.
// In a node that is a container, its uplink is a veth as the pods' devices are.
func (h *Handle) Uplinks() (map[int]bool, error) {
	out, err := h.DefaultRoutes()
	if err != nil {
		return nil, err
	}
	addrs, err := h.ExecuteFor(dump(unix.RTM_GETADDR), unix.RTM_NEWADDR, isNetworkAddress)
	if err != nil {
		return nil, fmt.Errorf("list addresses in %s: %w", h.Where(), err)
	}
	for _, m := range addrs {
		out[int(rtnl.Uint32(m[ifaddrIndex:]))] = true
	}
	return out, nil
}

// DefaultRoutes returns the ifindexes of the devices with a default route of the main table.
func (h *Handle) DefaultRoutes() (map[int]bool, error) {
	out := map[int]bool{}
	routes, err := h.ExecuteFor(dump(unix.RTM_GETROUTE), unix.RTM_NEWROUTE, isDefaultRoute)
	if err != nil {
		return nil, fmt.Errorf("list routes in %s: %w", h.Where(), err)
	}
	for _, m := range routes {
		if err := eachNexthop(m[rtmsgLen:], func(index int) { out[index] = true }); err != nil {
			return nil, fmt.Errorf("parse a route in %s: %w", h.Where(), err)
		}
	}
	return out, nil
}

func dump(what int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(what, unix.NLM_F_DUMP)
	req.AddData(nl.NewRtGenMsg())
	return req
}

func isNetworkAddress(m []byte) bool {
	if len(m) < ifaddrLen || m[ifaddrScope] >= unix.RT_SCOPE_LINK {
		return false
	}
	alone := uint8(32)
	if m[0] == unix.AF_INET6 {
		alone = 128
	}
	return m[ifaddrPrefix] < alone
}

func isDefaultRoute(m []byte) bool {
	return len(m) >= rtmsgLen && m[rtmsgDstLen] == 0 && m[rtmsgTable] == unix.RT_TABLE_MAIN && m[rtmsgType] == unix.RTN_UNICAST
}

// eachNexthop calls f with the ifindex of each device that a route leaves by.
func eachNexthop(attrs []byte, f func(index int)) error {
	return rtnl.EachAttr(attrs, func(kind uint16, v []byte) error {
		switch kind {
		case unix.RTA_OIF:
			f(int(rtnl.Uint32(v)))
		case unix.RTA_MULTIPATH:
			for len(v) >= nexthopLen {
				n := int(nl.NativeEndian().Uint16(v))
				if n < nexthopLen || n > len(v) {
					return fmt.Errorf("next hop of %d bytes, %d are there", n, len(v))
				}
				f(int(rtnl.Uint32(v[nexthopIndex:])))
				v = v[min(len(v), (n+nexthopAlign-1)&^(nexthopAlign-1)):]
			}
		}
		return nil
	})
}
