#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# BPF: wire_len of an ingress program lacks the Ethernet header, and the headers of all segments but one.
#
# One would guess: wire_len is what a packet takes on the wire, at either hook; so says the commit that added it
#   ("as it will appear on the wire after segmentation"). In any case it is not less than len.
# Seen: the number is prepared for qdiscs when a device sends (qdisc_pkt_len_init in net/core/dev.c). At ingress the
#   kernel writes skb->len to it before it puts the Ethernet header back for the program, so wire_len is len - 14,
#   and a GSO packet counts as one header. The same packet has 43 bytes where it leaves one end of a veth and 29
#   where it enters the other. The verifier accepts the field at both hooks, and linux/bpf.h has no comment on it.
# Who is hurt: limiters and accounting that read wire_len at the host's end of a pod's veth, where what the pod sends
#   arrives. Datagrams of one byte get 48 % more than the limit, and the two directions of a pod do not compare.
# Version: Linux 6.18.44, github.com/cilium/ebpf v0.22.0, golang.org/x/sys v0.49.0.
# Output:
#   UDP with 1 byte: egress len 43, wire_len 43; ingress len 43, wire_len 29
#   UDP with 40 segments of 1000 bytes: egress len 40042, wire_len 41680; ingress len 40042, wire_len 40028
#
# Needs root, iproute2, Go and the Go module proxy. Exits with 1 if that is no longer so, with 2 if it could not run.
set -Eeuo pipefail
trap 'exit 2' ERR

work=$(mktemp -d)
ns=finding-wire-$$
trap 'ip netns del "${ns}" 2>/dev/null || true; rm -rf "${work}"' EXIT
mkdir "${work}/probe"
cd "${work}/probe"
export GOFLAGS="-mod=mod -modcacherw" GOMODCACHE=${work}/mod
cat >main.go <<'GO'
package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%+v\n", err)
		os.Exit(2)
	}
	return v
}

// lengths is what a program saw of the last packet.
type lengths struct{ Len, Wire uint32 }

var links []link.Link // a link that is collected detaches its program

// watch attaches a program that copies both lengths of each packet, and returns the map it writes.
func watch(device string, hook ebpf.AttachType) *ebpf.Map {
	const wireLen = 160 // offset in struct __sk_buff
	m := must(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}))
	p := must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapValue(asm.R2, m.FD(), 0),
		asm.LoadMem(asm.R3, asm.R1, 0, asm.Word),
		asm.StoreMem(asm.R2, 0, asm.R3, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, wireLen, asm.Word),
		asm.StoreMem(asm.R2, 4, asm.R3, asm.Word),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return(),
	}}))
	links = append(links, must(link.AttachTCX(link.TCXOptions{
		Program: p, Attach: hook, Interface: must(net.InterfaceByName(device)).Index,
	})))
	return m
}

// last waits for a packet and forgets it.
func last(m *ebpf.Map) (seen lengths) {
	for range 500 {
		if must(0, m.Lookup(uint32(0), &seen)); seen.Wire != 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(0, m.Put(uint32(0), lengths{}))
	return seen
}

func main() {
	sent, arrived := watch("left", ebpf.AttachTCXEgress), watch("right", ebpf.AttachTCXIngress)
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0))
	must(0, unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 1000))
	for _, c := range []struct {
		name string
		size int
	}{{"UDP with 1 byte", 1}, {"UDP with 40 segments of 1000 bytes", 40000}} {
		must(0, unix.Sendto(fd, make([]byte, c.size), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 2}}))
		out, in := last(sent), last(arrived)
		fmt.Printf("%s: egress len %d, wire_len %d; ingress len %d, wire_len %d\n", c.name, out.Len, out.Wire, in.Len, in.Wire)
	}
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire github.com/cilium/ebpf v0.22.0\n\nrequire golang.org/x/sys v0.49.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null

ip netns add "${ns}"
ip netns exec "${ns}" sysctl -q -w net.ipv6.conf.default.disable_ipv6=1
ip -n "${ns}" link add left type veth peer name right
ip -n "${ns}" addr add 192.0.2.1/24 dev left
ip -n "${ns}" link set left up
ip -n "${ns}" link set right up
ip -n "${ns}" neigh replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev left nud permanent
got=$(ip netns exec "${ns}" ./finding)
echo "${got}"
[[ ${got} == 'UDP with 1 byte: egress len 43, wire_len 43; ingress len 43, wire_len 29
UDP with 40 segments of 1000 bytes: egress len 40042, wire_len 41680; ingress len 40042, wire_len 40028' ]] || exit 1
