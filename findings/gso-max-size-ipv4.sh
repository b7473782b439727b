#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Linux: who lowers gso_max_size of a device and puts it back has IPv4 left at the low value.
#
# One would guess: gso_max_size is one number, and a second write undoes the first; or it is
#   that of IPv6 only, since IPv4 has gso_ipv4_max_size of its own.
# Seen: a write of up to 65,536 sets both, and a larger one sets gso_max_size alone. So 131072,
#   3000 and 131072 again leave gso_ipv4_max_size at 3000, and TCP over IPv4 sends packets of two
#   segments from then on. It has to be written by itself.
# Who is hurt: whoever tunes a device with BIG TCP (gso_max_size above 64 KiB) and restores what
#   was shown as gso_max_size. iproute2 6.1 does not show the other number at all.
# Version: Linux 6.18.44, github.com/vishvananda/netlink v1.3.1. Linux has the number since 6.3.
# Output:
#   set to 131072: gso_max_size 131072, gso_ipv4_max_size 65536
#   set to 3000: gso_max_size 3000, gso_ipv4_max_size 3000
#   set to 131072: gso_max_size 131072, gso_ipv4_max_size 3000
#   TCP over IPv4: more than 10 segments in a packet before, at most 2 after
#
# Needs root, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-gso-$$
server=
trap '[[ -z ${server} ]] || kill "${server}" || true; ip netns del "${ns}" 2>/dev/null || true; ip netns del "${ns}-peer" 2>/dev/null || true; rm -rf "${work}"' EXIT
cd "${work}"
export GOFLAGS=-modcacherw GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func device() netlink.Link {
	l, err := netlink.LinkByName("left")
	must(err)
	return l
}

func main() {
	switch os.Args[1] {
	case "serve":
		l, err := net.Listen("tcp4", "192.0.2.2:7000")
		must(err)
		for {
			c, err := l.Accept()
			must(err)
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
		}
	case "set":
		size, err := strconv.Atoi(os.Args[2])
		must(err)
		must(netlink.LinkSetGSOMaxSize(device(), size))
		a := device().Attrs()
		fmt.Printf("set to %d: gso_max_size %d, gso_ipv4_max_size %d\n", size, a.GSOMaxSize, a.GSOIPv4MaxSize)
	case "send": // 20 MB; prints the average number of segments in a packet
		before := *device().Attrs().Statistics
		c, err := net.Dial("tcp4", "192.0.2.2:7000")
		must(err)
		_, err = c.Write(make([]byte, 20_000_000))
		must(err)
		must(c.(*net.TCPConn).CloseWrite())
		_, _ = io.Copy(io.Discard, c)
		after := device().Attrs().Statistics
		fmt.Println((after.TxBytes - before.TxBytes) / (after.TxPackets - before.TxPackets) / 1448)
	}
}
GO
printf 'module finding\n\ngo 1.24\n\nrequire github.com/vishvananda/netlink v1.3.1\n' >go.mod
go mod tidy 2>/dev/null
CGO_ENABLED=0 go build -o finding .

ip netns add "${ns}"
ip netns add "${ns}-peer"
ip -n "${ns}" link add left type veth peer name right netns "${ns}-peer"
ip -n "${ns}" addr add 192.0.2.1/24 dev left
ip -n "${ns}-peer" addr add 192.0.2.2/24 dev right
ip -n "${ns}" link set left up
ip -n "${ns}-peer" link set right up
ip netns exec "${ns}-peer" ./finding serve &
server=$!
timeout 10 ip netns exec "${ns}" bash -c 'until exec 3<>/dev/tcp/192.0.2.2/7000; do sleep 0.1; done' 2>/dev/null

in_ns() { ip netns exec "${ns}" ./finding "$@"; }
in_ns set 131072
before=$(in_ns send)
in_ns set 3000
restored=$(in_ns set 131072)
after=$(in_ns send)
echo "${restored}"
echo "TCP over IPv4: ${before} segments in a packet before, ${after} after"
{ [[ ${restored} == *'gso_max_size 131072, gso_ipv4_max_size 3000' ]] && ((before > 10 && after <= 2)); } || exit 1
