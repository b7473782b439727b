#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Go: net.Dial to fe80::1%eth0 in a second network namespace goes out of another device than eth0.
#
# One would guess: on a thread that is locked to a namespace, Go resolves the zone "eth0" there and
#   then, as net.InterfaceByName does, or at least fails.
# Seen: package net keeps the pairs of name and index in one cache of the process (ipv6ZoneCache in
#   net/interface.go), refreshed once a minute at most while names are found in it. It knows no
#   namespaces. Where the second namespace has another device under that index, the packets leave
#   through it, without an error. An interface that was deleted and made again under its name cannot
#   be dialled for up to a minute. To ask net.InterfaceByName first does not help: it returns the
#   right index and leaves the cache alone. Only the number as the zone, fe80::1%9, is safe.
# Who is hurt: node agents and CNI tools in Go that enter pods' namespaces (each has its eth0) and probe
#   or announce over link-local addresses; routing daemons that survive the re-creation of a device.
# Version: Go 1.26.8, github.com/vishvananda/netlink v1.3.1, netns v0.0.5, Linux 6.18.44.
# Output:
#   first namespace: eth0 has index 7, sent through eth0
#   second namespace: eth0 has index 9, sent through other
#   without other: eth0 has index 9, not sent: dial udp6 [fe80::1%eth0]:9: connect: network is unreachable
#   by number: eth0 has index 9, sent through eth0
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
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// add makes a veth pair whose first end has the name and the index, and waits until fe80::1 can be reached by it.
func add(name string, index int) {
	l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}, PeerName: name + "-peer"}
	must(netlink.LinkAdd(l))
	peer, err := netlink.LinkByName(name + "-peer")
	must(err)
	must(netlink.LinkSetUp(peer))
	must(netlink.LinkSetUp(l))
	must(netlink.NeighSet(&netlink.Neigh{
		LinkIndex: index, IP: target, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}, State: netlink.NUD_PERMANENT,
	}))
	must(netlink.AddrReplace(l, &netlink.Addr{
		IPNet: &net.IPNet{IP: net.ParseIP("fe80::2"), Mask: net.CIDRMask(64, 128)}, Flags: syscall.IFA_F_NODAD,
	}))
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_DGRAM, 0)
	must(err)
	defer syscall.Close(fd)
	to := &syscall.SockaddrInet6{Port: 9, ZoneId: uint32(index), Addr: [16]byte(target)}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err = syscall.Sendto(fd, []byte("x"), 0, to); err == nil {
			return
		}
		if time.Now().After(deadline) {
			must(err)
		}
	}
}

// sent is what each device sent until now.
func sent() map[string]uint64 {
	links, err := netlink.LinkList()
	must(err)
	bytes := map[string]uint64{}
	for _, l := range links {
		bytes[l.Attrs().Name] = l.Attrs().Statistics.TxBytes
	}
	return bytes
}

// send sends 20 kB to fe80::1 in the zone.
func send(what, zone string) {
	i, err := net.InterfaceByName("eth0")
	must(err)
	fmt.Printf("%s: eth0 has index %d, ", what, i.Index)
	before := sent()
	c, err := net.Dial("udp6", "[fe80::1%"+zone+"]:9")
	for range 20 {
		if err == nil {
			_, err = c.Write(make([]byte, 1000))
		}
	}
	if err != nil {
		fmt.Println("not sent:", err)
		return
	}
	for name, bytes := range sent() {
		if bytes-before[name] >= 20000 {
			fmt.Println("sent through", name)
		}
	}
}

var target = net.ParseIP("fe80::1")

// The namespaces belong to this thread, and end with it.
func main() {
	runtime.LockOSThread()
	_, err := netns.New()
	must(err)
	add("eth0", 7)
	send("first namespace", "eth0")
	_, err = netns.New()
	must(err)
	add("eth0", 9)
	add("other", 7)
	send("second namespace", "eth0")
	l, err := netlink.LinkByName("other")
	must(err)
	must(netlink.LinkDel(l))
	send("without other", "eth0")
	send("by number", "9")
}
GO
cat >go.mod <<'MOD'
module finding

go 1.25

require (
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
)
MOD
CGO_ENABLED=0 go build -o finding . 2>/dev/null
got=$(./finding)
echo "${got}"
[[ ${got} == 'first namespace: eth0 has index 7, sent through eth0
second namespace: eth0 has index 9, sent through other
without other: eth0 has index 9, not sent: dial udp6 [fe80::1%eth0]:9: connect: network is unreachable
by number: eth0 has index 9, sent through eth0' ]] || exit 1
