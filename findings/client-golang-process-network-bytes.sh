#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# client_golang: process_network_receive_bytes_total counts the network namespace, IPv4 only.
#
# One would guess: what the help text says, "Number of bytes received by the process over the
#   network", of IPv4 and IPv6.
# Seen: the number is InOctets of the IpExt lines in /proc/PID/net/netstat. That file shows the whole
#   network namespace, loopback included. So a process that never opened a socket "received" what
#   another process of the namespace did, and IPv6 (counted in /proc/PID/net/snmp6) adds nothing.
# Who is hurt: whoever bills, alerts on or compares pods by this metric. An agent on the host's
#   network reports the traffic of the node as its own, and so does each of its neighbours; the
#   sidecar of a proxy reports that of the proxy; a pod of an IPv6 cluster reports next to nothing.
# Version: github.com/prometheus/client_golang v1.25.0 (processCollect in
#   prometheus/process_collector_procfsenabled.go), since v1.20. Linux 6.18.44.
# Output:
#   a process without sockets, after 10 MB over IPv4 between two others: some 10,015,000 bytes received
#   the same after 10 MB over IPv6: 0 bytes more
#
# Needs root, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-process-$$
idle=
trap '[[ -z ${idle} ]] || kill "${idle}" || true; ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS=-modcacherw GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	switch os.Args[1] {
	case "send": // 10 MB from one socket of this process to another
		l, err := net.Listen("tcp", os.Args[2])
		must(err)
		c, err := net.Dial("tcp", l.Addr().String())
		must(err)
		s, err := l.Accept()
		must(err)
		go func() { _, _ = c.Write(make([]byte, 10_000_000)); _ = c.Close() }()
		_, err = io.Copy(io.Discard, s)
		must(err)
	case "metric": // of the process whose id is given
		pid, err := strconv.Atoi(os.Args[2])
		must(err)
		r := prometheus.NewRegistry()
		r.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{
			PidFn: func() (int, error) { return pid, nil },
		}))
		families, err := r.Gather()
		must(err)
		for _, f := range families {
			if f.GetName() == "process_network_receive_bytes_total" {
				fmt.Println(int64(f.GetMetric()[0].GetCounter().GetValue()))
			}
		}
	}
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire github.com/prometheus/client_golang v1.25.0\n' >go.mod
go mod tidy 2>/dev/null
CGO_ENABLED=0 go build -o finding .

ip netns add "${ns}"
ip -n "${ns}" link set lo up
ip netns exec "${ns}" sleep 60 &
idle=$!

ip netns exec "${ns}" ./finding send 127.0.0.1:0
v4=$(./finding metric "${idle}")
ip netns exec "${ns}" ./finding send '[::1]:0'
v6=$(($(./finding metric "${idle}") - v4))
echo "a process without sockets, after 10 MB over IPv4 between two others: ${v4} bytes received"
echo "the same after 10 MB over IPv6: ${v6} bytes more"
((v4 > 10000000 && v6 < 1000000)) || exit 1
