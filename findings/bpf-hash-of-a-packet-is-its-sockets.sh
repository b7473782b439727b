#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# BPF: bpf_get_hash_recalc returns another number for each transmission of the same SYN.
#
# One would guess: the helper calculates the hash from addresses, protocol and ports, as its name says, so that one
#   flow has one number. Its manual says that a hash is computed if none is set, and nothing of who sets one.
# Seen: what a local socket sends brings a hash along, and that counts as set: a random number of the socket
#   (sk_set_txhash in include/net/sock.h), which a veth passes on to the host. TCP draws it anew at each timeout
#   (tcp_write_timeout in net/ipv4/tcp_timer.c), a UDP socket at each connect(). So at the host's end of a pod's veth
#   one connection has many numbers. After bpf_set_hash_invalid the helper does calculate, and all are the same.
#   UDP by sendto() has no such number.
# Who is hurt: programs that choose a backend, a next hop, a sample or a slot of a flow table by this hash. The second
#   SYN of a connection goes to another backend than the first, and a flow under loss, which is the one that an
#   operator looks for, is counted as many. A test on a clean link shows none of it.
# Version: Linux 6.18.44, github.com/cilium/ebpf v0.22.0, golang.org/x/sys v0.49.0.
# Output:
#   TCP, 4 transmissions of one SYN: distinct hashes 4, after bpf_set_hash_invalid 1
#   UDP, 4 datagrams, each after a connect: distinct hashes 4, after bpf_set_hash_invalid 1
#   UDP, 4 datagrams by sendto: distinct hashes 1, after bpf_set_hash_invalid 1
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
	"time"

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

// The namespaces belong to this thread, and end with it.
func main() {
	runtime.LockOSThread()
	host := must(netns.New())
	pod := must(netns.New())
	check(netns.Set(host))
	check(netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "host0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(pod),
	}))
	hostEnd := must(netlink.LinkByName("host0"))
	check(netlink.LinkSetUp(hostEnd))
	hashes := must(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Queue, ValueSize: 8, MaxEntries: 64}))
	program := must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, 16, asm.Word), // __sk_buff.protocol
		asm.JNE.Imm(asm.R2, 0x0008, "next"),       // IPv4 in network order
		asm.FnGetHashRecalc.Call(),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.FnSetHashInvalid.Call(),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.FnGetHashRecalc.Call(),
		asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, hashes.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnMapPushElem.Call(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("next"),
		asm.Return(),
	}}))
	tcx := must(link.AttachTCX(link.TCXOptions{
		Program: program, Attach: ebpf.AttachTCXIngress, Interface: hostEnd.Attrs().Index,
	}))
	defer tcx.Close()

	check(netns.Set(pod))
	eth0 := must(netlink.LinkByName("eth0"))
	check(netlink.AddrAdd(eth0, must(netlink.ParseAddr("192.0.2.1/24"))))
	check(netlink.LinkSetUp(eth0))
	check(netlink.NeighSet(&netlink.Neigh{
		LinkIndex: eth0.Attrs().Index, IP: net.IPv4(192, 0, 2, 2), HardwareAddr: hostEnd.Attrs().HardwareAddr,
		State: netlink.NUD_PERMANENT,
	}))
	peer := &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 2}, Port: 80}
	socket := func(kind int) int {
		fd := must(unix.Socket(unix.AF_INET, kind, 0))
		check(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 40000}))
		return fd
	}
	// Four packets are looked at, whenever they come, and what comes after them is left out.
	show := func(what string, fd int) {
		found, calculated := map[uint32]bool{}, map[uint32]bool{}
		v, deadline := [2]uint32{}, time.Now().Add(time.Minute)
		for packets := 0; packets < 4; {
			if hashes.LookupAndDelete(nil, &v) == nil {
				found[v[0]], calculated[v[1]] = true, true
				packets++
			} else if time.Sleep(10 * time.Millisecond); time.Now().After(deadline) {
				check(fmt.Errorf("%s: %d packets came", what, packets))
			}
		}
		fmt.Printf("%s: distinct hashes %d, after bpf_set_hash_invalid %d\n", what, len(found), len(calculated))
		check(unix.Close(fd))
		for hashes.LookupAndDelete(nil, &v) == nil {
		}
	}

	tcp := socket(unix.SOCK_STREAM | unix.SOCK_NONBLOCK)
	if err := unix.Connect(tcp, peer); err != unix.EINPROGRESS {
		check(fmt.Errorf("connect: %v", err))
	}
	show("TCP, 4 transmissions of one SYN", tcp) // nobody answers; a second lies between the first ones
	udp := socket(unix.SOCK_DGRAM)
	for range 4 {
		check(unix.Connect(udp, peer))
		must(unix.Write(udp, []byte("x")))
	}
	show("UDP, 4 datagrams, each after a connect", udp)
	udp = socket(unix.SOCK_DGRAM)
	for range 4 {
		check(unix.Sendto(udp, []byte("x"), 0, peer))
	}
	show("UDP, 4 datagrams by sendto", udp)
}
GO
cat >go.mod <<'MOD'
module finding

go 1.25

require (
	github.com/cilium/ebpf v0.22.0
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
	golang.org/x/sys v0.49.0
)
MOD
CGO_ENABLED=0 go build -o finding . 2>/dev/null

got=$(./finding)
echo "${got}"
[[ ${got} == 'TCP, 4 transmissions of one SYN: distinct hashes 4, after bpf_set_hash_invalid 1
UDP, 4 datagrams, each after a connect: distinct hashes 4, after bpf_set_hash_invalid 1
UDP, 4 datagrams by sendto: distinct hashes 1, after bpf_set_hash_invalid 1' ]] || exit 1
