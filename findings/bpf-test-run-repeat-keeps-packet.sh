#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# BPF_PROG_TEST_RUN: each repetition gets the packet and the context as the one before left them.
#
# One would guess: `repeat` runs the program so many times on the given input, and the time is that of
#   one run on it. So says Benchmark of cilium/ebpf, and `bpftool prog run ... repeat N`.
# Seen: the kernel makes one skb or one xdp_buff, and nothing is put back between the runs (bpf_test_run
#   in net/bpf/test_run.c). A program that counts up skb->mark finds its own mark, and one that lowers
#   the TTL meets a TTL of 0. The kernel's documentation speaks of copies for XDP's live mode only.
# Who is hurt: whoever measures a program that writes to packets. From the second run on the numbers are
#   those of another path: "has my mark, leave", "TTL expired, drop", "already encapsulated". A test with
#   `repeat` that looks at the returned value or at the packet sees a state that no first packet is in.
# Version: Linux 6.18.44, github.com/cilium/ebpf v0.22.0.
# Output:
#   mark + 1: returns 1 after 1 run, 1000 after 1000 runs
#   XDP, TTL 64 - 1: leaves 63 after 1 run, 4 after 60 runs
#   a program that drops a packet with TTL 0: passes after 1 run, drops after 1000 runs
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
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

func must(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%+v\n", err)
		os.Exit(2)
	}
}

const ttl = 14 + 8 // offset in an Ethernet frame with IPv4

func load(kind ebpf.ProgramType, i ...asm.Instruction) *ebpf.Program {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "GPL", Instructions: i})
	must(err)
	return p
}

// run returns the program's value and the TTL in the packet after so many runs on a packet with TTL 64.
func run(p *ebpf.Program, repeat uint32) (value uint32, left byte) {
	in := make([]byte, 64)
	in[12], in[14], in[ttl] = 0x08, 0x45, 64
	out := make([]byte, 64)
	value, err := p.Run(&ebpf.RunOptions{Data: in, DataOut: out, Repeat: repeat})
	must(err)
	return value, out[ttl]
}

func main() {
	const mark = 8 // offset in struct __sk_buff
	count := load(ebpf.SchedCLS,
		asm.LoadMem(asm.R0, asm.R1, mark, asm.Word),
		asm.Add.Imm(asm.R0, 1),
		asm.StoreMem(asm.R1, mark, asm.R0, asm.Word),
		asm.Return(),
	)
	const drop, pass = 1, 2
	forward := load(ebpf.XDP, // lowers the TTL, drops at 0
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Mov.Imm(asm.R0, drop),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, ttl+1),
		asm.JGT.Reg(asm.R4, asm.R3, "end"),
		asm.LoadMem(asm.R5, asm.R2, ttl, asm.Byte),
		asm.JEq.Imm(asm.R5, 0, "end"),
		asm.Sub.Imm(asm.R5, 1),
		asm.StoreMem(asm.R2, ttl, asm.R5, asm.Byte),
		asm.Mov.Imm(asm.R0, pass),
		asm.Return().WithSymbol("end"),
	)
	once, _ := run(count, 1)
	many, _ := run(count, 1000)
	fmt.Printf("mark + 1: returns %d after 1 run, %d after 1000 runs\n", once, many)
	first, left := run(forward, 1)
	_, left60 := run(forward, 60)
	fmt.Printf("XDP, TTL 64 - 1: leaves %d after 1 run, %d after 60 runs\n", left, left60)
	last, _ := run(forward, 1000)
	say := map[uint32]string{drop: "drops", pass: "passes"}
	fmt.Printf("a program that drops a packet with TTL 0: %s after 1 run, %s after 1000 runs\n", say[first], say[last])
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire github.com/cilium/ebpf v0.22.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null
got=$(./finding)
echo "${got}"
[[ ${got} == 'mark + 1: returns 1 after 1 run, 1000 after 1000 runs
XDP, TTL 64 - 1: leaves 63 after 1 run, 4 after 60 runs
a program that drops a packet with TTL 0: passes after 1 run, drops after 1000 runs' ]] || exit 1
