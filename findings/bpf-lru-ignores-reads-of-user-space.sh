#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# BPF: an LRU map evicts an entry that user space reads all the time.
#
# One would guess: a look-up is a use, by a program or by bpf(2), so that what an agent polls stays.
# Seen: a look-up by a program marks the entry as used; one by user space does not (since 2019 it goes by
#   map_lookup_elem_sys_only, htab_lru_map_lookup_elem_sys in kernel/bpf/hashtab.c). An entry that user space reads
#   before each of 5000 insertions is gone before the map of 1000 was filled once more, while the same entry stays if
#   a program looks it up as often. The kernel's page about hash maps does not tell the two apart, and
#   docs.ebpf.io says that each look-up marks the entry.
# Who is hurt: agents that keep configuration or state of pods in an LRU map which programs rarely read, and poll
#   it "to keep it warm" or trust that a watched entry is a live one: it goes, and the next look-up says that
#   there is no such pod, flow or limit.
# Version: Linux 6.18.44, github.com/cilium/ebpf v0.22.0.
# Output (the numbers vary by some hundred):
#   read by user space before each of 5000 insertions: evicted after 896
#   read by a program before each of 5000 insertions: still there
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
	"errors"
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

// look inserts 5000 keys into a new map of 1000 entries and calls read before each. It says when key 0 had gone.
func look(read func(m *ebpf.Map) func()) string {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 4, ValueSize: 4, MaxEntries: 1000})
	must(err)
	defer m.Close()
	reader := read(m)
	must(m.Put(uint32(0), uint32(1)))
	for key := uint32(1); key <= 5000; key++ {
		reader()
		must(m.Put(key, key))
		var k, v uint32
		for at := m.Iterate(); at.Next(&k, &v) && k != 0; { // looks for key 0 without a look-up of it by a program
		}
		if k != 0 {
			return fmt.Sprintf("evicted after %d", key)
		}
	}
	return "still there"
}

func byUserSpace(m *ebpf.Map) func() {
	return func() {
		var value uint32
		if err := m.Lookup(uint32(0), &value); !errors.Is(err, ebpf.ErrKeyNotExist) {
			must(err)
		}
	}
}

func byProgram(m *ebpf.Map) func() {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, 0),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.FnMapLookupElem.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}})
	must(err)
	return func() {
		_, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
		must(err)
	}
}

func main() {
	fmt.Println("read by user space before each of 5000 insertions:", look(byUserSpace))
	fmt.Println("read by a program before each of 5000 insertions:", look(byProgram))
}
GO
printf 'module finding\n\ngo 1.25\n\nrequire github.com/cilium/ebpf v0.22.0\n' >go.mod
CGO_ENABLED=0 go build -o finding . 2>/dev/null
got=$(./finding)
echo "${got}"
[[ ${got} =~ ^'read by user space before each of 5000 insertions: evicted after '[0-9]+$'\n''read by a program before each of 5000 insertions: still there'$ ]] || exit 1
