#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Linux: UdpOutDatagrams counts a send with UDP_SEGMENT as one datagram, the receiver counts each.
#
# One would guess: OutDatagrams is what RFC 4113 says, the datagrams that were sent, so that a
#   sender's OutDatagrams is compared with the receiver's InDatagrams to see loss.
# Seen: 100 sends of 40 datagrams each are 100 OutDatagrams at the sender and 4000 InDatagrams at the
#   receiver. udp_send_skb in net/ipv4/udp.c adds 1 for the whole GSO packet; the receiver splits it for a
#   socket without UDP_GRO and counts each. So the loss that one computes is negative, and the real one
#   is hidden.
# Who is hurt: whoever watches QUIC, WireGuard or DNS over QUIC by these counters: the packets per second of a
#   server are too low by up to 64 or 128, and fall when a release turns on UDP_SEGMENT.
# Version: Linux 6.18.44, golang.org/x/sys v0.49.0.
# Output:
#   100 sends of 40 datagrams: sender OutDatagrams 100, receiver InDatagrams 4000
#   100 sends of 1 datagram: sender OutDatagrams 100, receiver InDatagrams 100
#
# Needs root, iproute2, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-gso-udp-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; ip netns del "${ns}-peer" 2>/dev/null || true; rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

const size = 1000

func main() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	must(err)
	peer := &unix.SockaddrInet4{Port: 7000, Addr: [4]byte{192, 0, 2, 2}}
	datagrams, err := strconv.Atoi(os.Args[2])
	must(err)
	if os.Args[1] == "send" { // 100 times so many datagrams
		must(unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, size))
		must(unix.Connect(fd, peer))
		for range 100 {
			must(unix.Send(fd, make([]byte, datagrams*size), 0))
		}
		return
	}
	must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	must(unix.Bind(fd, peer))
	fmt.Println("ready")
	for range 100 * datagrams {
		n, err := unix.Read(fd, make([]byte, 1<<16))
		must(err)
		if n != size {
			must(fmt.Errorf("%d bytes", n))
		}
	}
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire golang.org/x/sys v0.49.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

mkfifo ready
counter() { ip netns exec "$1" grep '^Udp: [0-9]' /proc/net/snmp | cut -d ' ' -f "$2"; }

run() { # DATAGRAMS
  ip netns add "${ns}"
  ip netns add "${ns}-peer"
  ip -n "${ns}" link add left type veth peer name right netns "${ns}-peer"
  ip -n "${ns}" addr add 192.0.2.1/24 dev left
  ip -n "${ns}-peer" addr add 192.0.2.2/24 dev right
  ip -n "${ns}" link set left up
  ip -n "${ns}-peer" link set right up
  timeout 60 ip netns exec "${ns}-peer" ./finding receive "$1" >ready &
  local receiver=$! line
  read -r line <ready
  [[ ${line} == ready ]]
  ip netns exec "${ns}" ./finding send "$1"
  wait "${receiver}"
  echo "sender OutDatagrams $(counter "${ns}" 5), receiver InDatagrams $(counter "${ns}-peer" 2)"
  ip netns del "${ns}"
  ip netns del "${ns}-peer"
}

many=$(run 40)
one=$(run 1)
echo "100 sends of 40 datagrams: ${many}"
echo "100 sends of 1 datagram: ${one}"
[[ ${many} == 'sender OutDatagrams 100, receiver InDatagrams 4000' && ${one} == 'sender OutDatagrams 100, receiver InDatagrams 100' ]] || exit 1
