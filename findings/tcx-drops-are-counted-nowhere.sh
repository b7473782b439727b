#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Linux: packets that a TCX program drops are in no counter, even with a clsact on the device.
#
# One would guess: TCX runs what a cls_bpf filter on clsact ran before, so its drops are counted as
#   those were: as "dropped" of the clsact qdisc. Or else as rx_dropped of the device.
# Seen: the same program on the same device counts 10 drops as a filter, and none as a TCX link: not
#   in the clsact (which does not even count the packets as seen), not in rx_dropped, not in
#   /proc/net/softnet_stat or /proc/net/snmp. rx_packets counts all 10 as received. In net/core/dev.c
#   only tc_run writes to the statistics; sch_handle_ingress ends the packet of a TCX program without.
# Who is hurt: whoever moves a policer or a policy from clsact to TCX and watches "dropped" of
#   `tc -s qdisc`, or node_exporter's drop counters: they read zero from then on. A program has to
#   count what it drops.
# Version: Linux 6.18.44, github.com/cilium/ebpf v0.22.0, github.com/vishvananda/netlink v1.3.1.
# Output:
#   filter on clsact: rx_packets 10, rx_dropped 0, clsact saw 10 and dropped 10, IP received 0
#   TCX link: rx_packets 10, rx_dropped 0, clsact saw 0 and dropped 0, IP received 0
#
# Needs root, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func up(name, address string) netlink.Link {
	check(os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0))
	l := must(netlink.LinkByName(name))
	check(netlink.AddrAdd(l, must(netlink.ParseAddr(address))))
	check(netlink.LinkSetUp(l))
	return l
}

func received() string { // InReceives, the third number of the second line Ip
	lines := strings.Split(string(must(os.ReadFile("/proc/thread-self/net/snmp"))), "\n")
	return strings.Fields(lines[1])[3]
}

// The namespaces belong to this thread, and end with it.
func main() {
	runtime.LockOSThread()
	sender := must(netns.New())
	receiver := must(netns.New())
	check(netns.Set(sender))
	check(netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "left"}, PeerName: "right", PeerNamespace: netlink.NsFd(receiver),
	}))
	left := up("left", "192.0.2.1/24")
	check(netns.Set(receiver))
	right := up("right", "192.0.2.2/24")
	index := right.Attrs().Index
	hardware := right.Attrs().HardwareAddr
	check(netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}))
	drop := must(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	}))
	if os.Args[1] == "tcx" {
		l := must(link.AttachTCX(link.TCXOptions{Program: drop, Attach: ebpf.AttachTCXIngress, Interface: index}))
		defer l.Close()
	} else {
		check(netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL, Priority: 1,
		}, Fd: drop.FD(), Name: "drop", DirectAction: true}))
	}

	check(netns.Set(sender))
	check(netlink.NeighSet(&netlink.Neigh{
		LinkIndex: left.Attrs().Index, IP: net.IPv4(192, 0, 2, 2), HardwareAddr: hardware, State: netlink.NUD_PERMANENT,
	}))
	c := must(net.Dial("udp4", "192.0.2.2:9"))
	for range 10 {
		must(c.Write([]byte("x")))
	}

	check(netns.Set(receiver))
	s := must(netlink.LinkByName("right")).Attrs().Statistics
	for _, q := range must(netlink.QdiscList(right)) {
		if q.Type() == "clsact" {
			a := q.Attrs().Statistics
			fmt.Printf("rx_packets %d, rx_dropped %d, clsact saw %d and dropped %d, IP received %s\n",
				s.RxPackets, s.RxDropped, a.Basic.Packets, a.Queue.Drops, received())
		}
	}
	check(netns.Set(sender)) // keeps both alive until here
}
GO
cat >go.mod <<'MOD'
module finding

go 1.25

require (
	github.com/cilium/ebpf v0.22.0
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
)
MOD
CGO_ENABLED=0 go build -o finding . 2>/dev/null
filter=$(./finding filter)
tcx=$(./finding tcx)
echo "filter on clsact: ${filter}"
echo "TCX link: ${tcx}"
[[ ${filter} == 'rx_packets 10, rx_dropped 0, clsact saw 10 and dropped 10, IP received 0' ]] || exit 1
[[ ${tcx} == 'rx_packets 10, rx_dropped 0, clsact saw 0 and dropped 0, IP received 0' ]] || exit 1
