// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/podweir/podweir/bpf/bpftest"
)

const (
	turnsRounds  = 9
	turnsPackets = 200_000
)

// BenchmarkTurns measures what a light packet costs where each is another pod's,
// with nothing between two of them: the minimum of 9 runs of 200,000 packets, by
// turns through so many copies of a program, less the same through copies of an
// empty one. With "own" each copy has maps of its own, as pods have; with
// "shared" all have one set, so that what is left are the instructions, which
// one program for all pods would not fetch anew.
func BenchmarkTurns(b *testing.B) {
	bpftest.RequireRoot(b)
	for _, name := range []string{"pw_band", "pw_edt"} {
		for _, pods := range []int{1, 8, 110, 250} {
			empty := turns(b, copies(pods, func() *ebpf.Program { return emptyProgram(b) }))
			first := prepare(b, &benchPath{program: name, path: "light"})
			own := turns(b, append(copies(pods-1, func() *ebpf.Program {
				return prepare(b, &benchPath{program: name, path: "light"}).program
			}), first.program))
			shared := turns(b, append(copies(pods-1, func() *ebpf.Program { return twin(b, first.dataplane, name) }), first.program))
			b.Run(fmt.Sprintf("%s/%d", name, pods), func(b *testing.B) {
				b.ReportMetric(float64(own-empty), "own-ns/packet")
				b.ReportMetric(float64(shared-empty), "shared-ns/packet")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func copies(n int, load func() *ebpf.Program) []*ebpf.Program {
	all := make([]*ebpf.Program, n)
	for i := range all {
		all[i] = load()
	}
	return all
}

// twin loads a program once more over the maps of a dataplane.
func twin(b *testing.B, d *bpftest.Dataplane, name string) *ebpf.Program {
	b.Helper()
	spec := oneProgram(b, name)
	p := spec.Programs[name]
	for i := range p.Instructions {
		if ref := p.Instructions[i].Reference(); spec.Maps[ref] != nil {
			if err := p.Instructions[i].AssociateMap(d.Map(ref)); err != nil {
				b.Fatal(err)
			}
		}
	}
	made, err := ebpf.NewProgram(p)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = made.Close() })
	return made
}

// turns runs packets through the programs, each through the next one.
func turns(b *testing.B, programs []*ebpf.Program) time.Duration {
	b.Helper()
	all, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: uint32(len(programs)),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = all.Close() }()
	for i, p := range programs {
		if err := all.Put(uint32(i), p); err != nil {
			b.Fatal(err)
		}
	}
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = next.Close() }()
	dispatch, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, next.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"),
			asm.LoadMem(asm.R3, asm.R0, 0, asm.DWord), asm.Mov.Reg(asm.R4, asm.R3),
			asm.Add.Imm(asm.R4, 1), asm.StoreMem(asm.R0, 0, asm.R4, asm.DWord),
			asm.Mod.Imm(asm.R3, int32(len(programs))),
			asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, all.FD()), asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), asm.Return(),
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = dispatch.Close() }()
	least := time.Hour
	for range turnsRounds {
		_, took, err := dispatch.Benchmark(tcpPacket(0), turnsPackets, nil)
		if err != nil {
			b.Fatal(err)
		}
		least = min(least, took)
	}
	return least
}
