// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	turnsRounds  = 9
	turnsPackets = 200_000
	// benchPods names the environment variable with the number of pods.
	benchPods = "PODWEIR_BENCH_PODS"
)

// BenchmarkTurns measures what a light packet costs where each is another pod's,
// with nothing between two of them: the minimum of 9 runs of 200,000 packets that
// take turns through so many slots, less the same through an empty program.
func BenchmarkTurns(b *testing.B) {
	bpftest.RequireRoot(b)
	var results []benchResult
	for _, name := range []string{"pw_band", "pw_edt"} {
		for _, pods := range podsOfTurns(b) {
			d, program := slots(b, name, pods)
			took := turns(b, program, pods) - turns(b, emptyProgram(b), pods)
			packets, _ := d.Counters()
			if want := uint64(turnsRounds * (turnsPackets/pods - 1)); packets[image.Light] < want {
				b.Errorf("%s counted %d light packets in the first of %d slots, want at least %d", name, packets[image.Light], pods, want)
			}
			results = append(results, benchResult{Program: name, Path: "turns", NSPerPacket: float64(took)})
			b.Run(fmt.Sprintf("%s/%d", name, pods), func(b *testing.B) {
				b.ReportMetric(float64(took), "ns/packet")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
	writeResults(b, results)
}

// podsOfTurns are the numbers of pods to measure.
func podsOfTurns(b *testing.B) []int {
	b.Helper()
	text := os.Getenv(benchPods)
	if text == "" {
		return []int{1, 8, 110, 250}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("%s is %q, want a number of pods, at least 1", benchPods, text)
	}
	return []int{n}
}

// slots loads a program that goes by the classid of its filter, and configures so
// many slots for it, all like the first.
func slots(b *testing.B, name string, pods int) (*bpftest.Dataplane, *ebpf.Program) {
	b.Helper()
	r := prepare(b, &benchPath{program: name, path: "light"}, 1)
	r.dataplane.CopySlot(b, pods)
	spec := oneProgram(b, name)
	p := spec.Programs[name]
	for i := range p.Instructions {
		ins := &p.Instructions[i]
		if ref := ins.Reference(); spec.Maps[ref] != nil {
			must.OK(b, p.Instructions[i].AssociateMap(r.dataplane.Map(ref)))
		}
		if ins.OpCode.IsDWordLoad() && ins.Constant == bpftest.Carrier {
			ins.Constant = int64(image.ByClassID)
		}
	}
	made, err := ebpf.NewProgram(p)
	must.OK(b, err)
	b.Cleanup(func() { _ = made.Close() })
	return r.dataplane, made
}

func runAlone(b *testing.B, p *ebpf.Program) time.Duration {
	b.Helper()
	_, took, err := p.Benchmark(tcpPacket(0), turnsPackets, nil)
	must.OK(b, err)
	return took
}

// turns runs packets through the program, each with the number of the next slot,
// as filters give it.
func turns(b *testing.B, p *ebpf.Program, pods int) time.Duration {
	b.Helper()
	target, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	must.OK(b, err)
	defer func() { _ = target.Close() }()
	must.OK(b, target.Put(uint32(0), p))
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	must.OK(b, err)
	defer func() { _ = next.Close() }()
	const classIDAt = 72 // tc_classid in struct __sk_buff
	dispatch, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, next.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"),
			asm.LoadMem(asm.R3, asm.R0, 0, asm.DWord), asm.Mov.Reg(asm.R4, asm.R3),
			asm.Add.Imm(asm.R4, 1), asm.StoreMem(asm.R0, 0, asm.R4, asm.DWord),
			asm.Mod.Imm(asm.R3, int32(pods)), asm.Add.Imm(asm.R3, bpftest.FirstSlot),
			asm.StoreMem(asm.R6, classIDAt, asm.R3, asm.Word),
			asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, target.FD()), asm.Mov.Imm(asm.R3, 0), asm.FnTailCall.Call(),
			asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), asm.Return(),
		},
	})
	must.OK(b, err)
	defer func() { _ = dispatch.Close() }()
	least := time.Hour
	for range turnsRounds {
		least = min(least, runAlone(b, dispatch))
	}
	return least
}
