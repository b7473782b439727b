#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Linux: SO_MAX_PACING_RATE without fq paces TCP and not UDP, and says so nowhere.
#
# One would guess: a limit that setsockopt accepts and getsockopt returns holds. Since Linux 4.13 it needs no fq
#   qdisc any more, as TCP shows. Or a protocol that cannot obey it refuses the option.
# Seen: TCP paces itself by timers; for all else the number only lies in the socket (sk_max_pacing_rate) until an fq
#   qdisc reads it. With pfifo_fast, fq_codel or none, as on a pod's veth, a UDP socket sends at once.
#   socket(7) does not name the option, and tc-fq(8) does not say that UDP alone depends on it.
# Who is hurt: QUIC and media servers and `iperf3 -u --fq-rate` that rely on it: tested on a host with fq, and
#   unlimited in a container, where the bursts are dropped by the next shaper or policer.
# Version: Linux 6.18.44, golang.org/x/sys v0.49.0.
# Output (the times vary):
#   TCP: option 125000 bytes/s, 500 kB took 3912 ms
#   UDP: option 125000 bytes/s, 500 kB took 2 ms
#
# Needs root, iproute2, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-pacing-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; ip netns del "${ns}-peer" 2>/dev/null || true; rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

const address = "192.0.2.2:7000"

func main() {
	if os.Args[1] == "receive" { // until a connection ends
		l, err := net.Listen("tcp4", address)
		must(err)
		u, err := net.ListenPacket("udp4", address)
		must(err)
		defer u.Close()
		fmt.Println("ready")
		c, err := l.Accept()
		must(err)
		_, err = io.Copy(io.Discard, c)
		must(err)
		must(c.Close())
		return
	}
	c, err := net.Dial(os.Args[2], address)
	must(err)
	raw, err := c.(syscall.Conn).SyscallConn()
	must(err)
	rate := 0
	must(raw.Control(func(fd uintptr) {
		must(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 125000))
		rate, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
	}))
	must(err)
	start := time.Now()
	for range 500 {
		_, err = c.Write(make([]byte, 1000))
		must(err)
	}
	if t, ok := c.(*net.TCPConn); ok { // until the peer has all
		must(t.CloseWrite())
		_, err = io.Copy(io.Discard, t)
		must(err)
	}
	fmt.Println(rate, time.Since(start).Milliseconds())
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire golang.org/x/sys v0.49.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

ip netns add "${ns}"
ip netns add "${ns}-peer"
ip -n "${ns}" link add left type veth peer name right netns "${ns}-peer"
ip -n "${ns}" addr add 192.0.2.1/24 dev left
ip -n "${ns}-peer" addr add 192.0.2.2/24 dev right
ip -n "${ns}" link set left up
ip -n "${ns}-peer" link set right up
mkfifo ready
timeout 60 ip netns exec "${ns}-peer" ./finding receive >ready &
receiver=$!
read -r line <ready
[[ ${line} == ready ]]
read -r rate_udp ms_udp < <(timeout 50 ip netns exec "${ns}" ./finding send udp4)
read -r rate_tcp ms_tcp < <(timeout 50 ip netns exec "${ns}" ./finding send tcp4)
wait "${receiver}"
echo "TCP: option ${rate_tcp} bytes/s, 500 kB took ${ms_tcp} ms"
echo "UDP: option ${rate_udp} bytes/s, 500 kB took ${ms_udp} ms"
((rate_tcp == 125000 && rate_udp == 125000 && ms_tcp > 2500 && ms_udp < 1500)) || exit 1
