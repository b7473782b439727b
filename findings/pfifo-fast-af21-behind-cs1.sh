#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Linux: pfifo_fast sends AF21 after CS1, EF with best effort, and does not sort IPv6 at all.
#
# One would guess: pfifo_fast and prio sort by the DSCP that a socket sets with IP_TOS or IPV6_TCLASS, at
#   least so that expedited forwarding (EF) and network control (CS6) do not wait behind best effort, and low
#   latency data (AF21) not behind lower effort (CS1).
# Seen: IP_TOS sets the packet's priority by the four bits that RFC 1349 called TOS (rt_tos2priority,
#   ip_tos2prio in net/ipv4/route.c), which cut through the middle of the DSCP. AF11, AF21 and AF31 are "maximise
#   throughput" there and get the last band; AF12, which is to be dropped before AF11, gets the first one; EF, CS6
#   and CS1 share the middle one with unmarked packets. IPV6_TCLASS sets no priority: one band for all.
#   tc-prio(8) has the table in bits of TOS and mentions neither DSCP nor IPv6.
# Who is hurt: programs that mark by DSCP, as OpenSSH does from 7.8 to 10.0 (AF21 for a terminal, CS1 for a copy): the
#   terminal waits behind the copy. And whoever moves a service that relied on these bands to IPv6.
# Version: Linux 6.18.44, golang.org/x/sys v0.49.0, iproute2 6.1.0.
# Output:
#   IPv4, sent: AF21 CS1 EF CS6 unmarked AF12; left: AF12 CS1 EF CS6 unmarked AF21
#   IPv6, sent: AF21 CS1 EF CS6 unmarked AF12; left: AF21 CS1 EF CS6 unmarked AF12
#
# Needs root, iproute2, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-band-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; ip netns del "${ns}-peer" 2>/dev/null || true; rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

var classes = []struct {
	name  string
	octet int // DSCP and two bits of ECN
}{{"AF21", 0x48}, {"CS1", 0x20}, {"EF", 0xb8}, {"CS6", 0xc0}, {"unmarked", 0}, {"AF12", 0x30}}

// socket is connected to the peer, or bound as the peer.
func socket(v6, bound bool, octet int) int {
	family, level, option := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TOS
	var peer unix.Sockaddr = &unix.SockaddrInet4{Port: 7000, Addr: [4]byte{192, 0, 2, 2}}
	if v6 {
		family, level, option = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		peer = &unix.SockaddrInet6{Port: 7000, Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 2}}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
	must(err)
	must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	must(unix.SetsockoptInt(fd, level, option, octet))
	if bound {
		must(unix.Bind(fd, peer))
		return fd
	}
	for range 100 { // until there is a route
		if err = unix.Connect(fd, peer); err == nil {
			return fd
		}
		time.Sleep(100 * time.Millisecond)
	}
	must(err)
	return fd
}

func main() {
	v6 := os.Args[2] == "6"
	if os.Args[1] == "send" {
		fds := []int{}
		for _, c := range classes {
			fds = append(fds, socket(v6, false, c.octet))
		}
		for range 8 { // these use up the burst
			must(unix.Send(fds[4], make([]byte, 500), 0))
		}
		for i, fd := range fds {
			must(unix.Send(fd, append(make([]byte, 499), byte(i+1)), 0))
		}
		return
	}
	fd := socket(v6, true, 0)
	fmt.Println("ready")
	left := []string{}
	for len(left) < len(classes) {
		b := make([]byte, 1000)
		n, err := unix.Read(fd, b)
		must(err)
		if i := b[n-1]; i > 0 {
			left = append(left, classes[i-1].name)
		}
	}
	fmt.Println(strings.Join(left, " "))
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire golang.org/x/sys v0.49.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

ip netns add "${ns}"
ip netns add "${ns}-peer"
ip -n "${ns}" link add left address 02:00:00:00:00:01 type veth peer name right address 02:00:00:00:00:02 netns "${ns}-peer"
for end in "${ns} left 1 2 right" "${ns}-peer right 2 1 left"; do
  read -r where device own other _ <<<"${end}"
  ip -n "${where}" link set "${device}" up
  ip -n "${where}" addr add "192.0.2.${own}/24" dev "${device}"
  ip -n "${where}" addr add "2001:db8::${own}/64" dev "${device}" nodad
  for address in "192.0.2.${other}" "2001:db8::${other}"; do
    ip -n "${where}" neigh add "${address}" lladdr "02:00:00:00:00:0${other}" dev "${device}"
  done
done
tc -n "${ns}" qdisc add dev left root handle 1: tbf rate 80kbit burst 2000 limit 100000
tc -n "${ns}" qdisc add dev left parent 1:1 pfifo_fast
mkfifo left

order() { # 4 or 6
  local receiver line
  timeout 60 ip netns exec "${ns}-peer" ./finding receive "$1" >left &
  receiver=$!
  exec 3<left
  read -r line <&3
  [[ ${line} == ready ]]
  ip netns exec "${ns}" ./finding send "$1"
  read -r line <&3
  wait "${receiver}"
  echo "${line}"
}

v4=$(order 4)
v6=$(order 6)
echo "IPv4, sent: AF21 CS1 EF CS6 unmarked AF12; left: ${v4}"
echo "IPv6, sent: AF21 CS1 EF CS6 unmarked AF12; left: ${v6}"
[[ ${v4} == 'AF12 CS1 EF CS6 unmarked AF21' && ${v6} == 'AF21 CS1 EF CS6 unmarked AF12' ]] || exit 1
