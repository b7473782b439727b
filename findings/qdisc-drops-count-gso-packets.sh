#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# tc -s: "Sent N pkt" counts the segments of GSO packets, "dropped" and "backlog" count GSO packets.
#
# One would guess: the numbers of one line have one unit, so that dropped / (sent + dropped) is the loss.
# Seen: a queue with room for half of 80 GSO packets of 40 segments each reports some 1600 packets sent and
#   some 40 dropped: a loss of 2 % where it was one half. Bytes are counted for what was sent and not for what
#   was dropped, so nothing in the output tells. bstats_update adds gso_segs, qdisc_qstats_drop adds 1
#   (include/net/sch_generic.h); of the counters of the device, tx_packets is in GSO packets too.
# Who is hurt: whoever alerts on the loss of a shaped pod or link by `tc -s` or an exporter: TCP with TSO and UDP
#   with UDP_SEGMENT lose up to 44 times what the ratio says, and the ratio changes when an application or a
#   driver turns offload on. Whoever sizes a queue by "backlog ...p" is wrong by as much.
# Version: Linux 6.18.44, iproute2 6.1.0, golang.org/x/sys v0.49.0.
# Output (one or two packets more or less were dropped):
#   80 packets of 1 segments: sent 41 and dropped 39 by tc: loss 48 %
#   80 packets of 40 segments: sent 1640 and dropped 39 by tc: loss 2 %
#
# Needs root, iproute2, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-drops-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
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

// Sends 80 packets of so many segments of 1000 bytes.
func main() {
	segments, err := strconv.Atoi(os.Args[1])
	must(err)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	must(err)
	must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20))
	must(unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000))
	must(unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 2}}))
	for range 80 {
		must(unix.Send(fd, make([]byte, segments*1000), 0))
	}
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire golang.org/x/sys v0.49.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

statistic() { tc -n "${ns}" -s qdisc show dev left | grep -oP "$1" | tail -n 1; }

run() { # SEGMENTS RATE: sets sent and dropped to what tc counts of the pfifo, when it is empty again
  ip netns add "${ns}"
  ip -n "${ns}" link add left type veth peer name right
  ip netns exec "${ns}" bash -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
  ip -n "${ns}" addr add 192.0.2.1/24 dev left
  ip -n "${ns}" link set left up
  ip -n "${ns}" link set right up
  ip -n "${ns}" neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev left
  tc -n "${ns}" qdisc add dev left root handle 1: htb default 1
  tc -n "${ns}" class add dev left parent 1: classid 1:1 htb rate "$2" burst 2000 quantum 2000
  tc -n "${ns}" qdisc add dev left parent 1:1 pfifo limit 40
  ip netns exec "${ns}" ./finding "$1"
  local deadline=$((SECONDS + 20))
  until [[ $(statistic 'backlog .* \K[0-9]+(?=p)') == 0 ]]; do
    ((SECONDS < deadline))
    sleep 0.1
  done
  sent=$(statistic 'bytes \K[0-9]+(?= pkt)')
  dropped=$(statistic 'dropped \K[0-9]+')
  ip netns del "${ns}"
  echo "80 packets of $1 segments: sent ${sent} and dropped ${dropped} by tc: loss $((100 * dropped / (sent + dropped))) %"
}

run 1 250kbit
((dropped > 20 && sent == 80 - dropped)) || exit 1
run 40 10mbit
((dropped > 20 && sent == 40 * (80 - dropped))) || exit 1
