#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Linux: UdpSndbufErrors counts datagrams that a full queue of the device dropped, whatever the send buffer.
#
# One would guess: the counter says that a socket's send buffer was full, so one raises SO_SNDBUF or
#   net.core.wmem_max; a datagram that a qdisc drops shows in that qdisc, and sendto tells of it.
# Seen: with a send buffer of 8 MiB, far more than the datagrams need, each datagram that a shaper has
#   no room for counts as UdpSndbufErrors and not as OutDatagrams, and sendto answers that all is well.
#   Only a socket with IP_RECVERR gets ENOBUFS. udp_send_skb in net/ipv4/udp.c turns ENOBUFS from
#   ip_send_skb, which is what a qdisc's drop becomes, into this counter and into success.
#   A program at the egress hook that drops does the same.
# Who is hurt: whoever runs a DNS server, a video sender or QUIC behind a bandwidth limit and follows the
#   advice to raise the buffer: the counter stays as it is, and the limit is looked for last.
# Version: Linux 6.18.44, golang.org/x/sys v0.49.0.
# Output (the numbers of drops vary by a few):
#   300 datagrams into a queue of 100: 0 errors from sendto, qdisc dropped 198, UdpSndbufErrors 198
#   the same with IP_RECVERR: 299 errors from sendto, qdisc dropped 299 more
#
# Needs root, iproute2, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-udp-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// Prints how many of 300 sends returned ENOBUFS. With an argument the socket has IP_RECVERR.
func main() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	must(err)
	must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20))
	if len(os.Args) > 1 {
		must(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1))
	}
	must(unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 2}}))
	failed := 0
	for range 300 {
		if err := unix.Send(fd, make([]byte, 958), 0); err == unix.ENOBUFS {
			failed++
		} else {
			must(err)
		}
	}
	fmt.Println(failed)
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire golang.org/x/sys v0.49.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

ip netns add "${ns}"
ip -n "${ns}" link add left type veth peer name right
ip netns exec "${ns}" bash -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
ip -n "${ns}" addr add 192.0.2.1/24 dev left
ip -n "${ns}" link set left up
ip -n "${ns}" link set right up
ip -n "${ns}" neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev left
tc -n "${ns}" qdisc add dev left root tbf rate 8kbit burst 2000 limit 100000 # holds 100 datagrams

dropped() { tc -n "${ns}" -s qdisc show dev left | grep -oE 'dropped [0-9]+' | grep -oE '[0-9]+'; }
buffer_errors() { ip netns exec "${ns}" grep '^Udp: [0-9]' /proc/net/snmp | cut -d ' ' -f 7; }

told=$(ip netns exec "${ns}" ./finding)
lost=$(dropped)
errors=$(buffer_errors)
told_recverr=$(ip netns exec "${ns}" ./finding recverr)
lost_recverr=$(($(dropped) - lost))
echo "300 datagrams into a queue of 100: ${told} errors from sendto, qdisc dropped ${lost}, UdpSndbufErrors ${errors}"
echo "the same with IP_RECVERR: ${told_recverr} errors from sendto, qdisc dropped ${lost_recverr} more"
((told == 0 && lost > 150 && errors == lost && told_recverr > 250 && told_recverr == lost_recverr)) || exit 1
