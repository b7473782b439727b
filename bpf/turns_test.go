// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/podweir/podweir/bpf/bpftest"
)

const (
	turnsRounds  = 9
	turnsPackets = 200_000
	// aloneRounds are fewer: there is one of them for each copy.
	aloneRounds = 3
	// benchPods names the environment variable with the number of pods.
	benchPods = "PODWEIR_BENCH_PODS"
)

// BenchmarkTurns measures what a light packet costs where each is another pod's,
// with nothing between two of them: the minimum of 9 runs of 200,000 packets, by
// turns through so many copies of a program, less the same through copies of an
// empty one. With "own" each copy has maps of its own, as pods have; with
// "shared" all have one set, so that what is left are the instructions, which
// one program for all pods would not fetch anew. "least" and "most" are the
// copies with maps of their own each by itself, which differ by where they and
// their maps lie in memory and by nothing else.
func BenchmarkTurns(b *testing.B) {
	bpftest.RequireRoot(b)
	var results []benchResult
	for _, name := range []string{"pw_band", "pw_edt"} {
		for _, pods := range podsOfTurns(b) {
			own := copies(pods, func() *benchRun { return prepare(b, &benchPath{program: name, path: "light"}) })
			programs := make([]*ebpf.Program, pods)
			for i, r := range own {
				programs[i] = r.program
			}
			shared := append(copies(pods-1, func() *ebpf.Program { return twin(b, own[0].dataplane, name) }), programs[0])
			empty := copies(pods, func() *ebpf.Program { return emptyProgram(b) })
			least, most := alone(b, programs)
			base, baseAlone := turns(b, empty), runAlone(b, empty[0])
			took := map[string]time.Duration{
				"own": turns(b, programs) - base, "shared": turns(b, shared) - base,
				"least": least - baseAlone, "most": most - baseAlone,
			}
			for path, ns := range took {
				results = append(results, benchResult{Program: name, Path: path, NSPerPacket: float64(ns)})
			}
			b.Run(fmt.Sprintf("%s/%d", name, pods), func(b *testing.B) {
				for path, ns := range took {
					b.ReportMetric(float64(ns), path+"-ns/packet")
				}
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

// alone runs packets through each of the programs by itself, round by round,
// and returns what the cheapest and the dearest took at best.
func alone(b *testing.B, programs []*ebpf.Program) (least, most time.Duration) {
	b.Helper()
	best := make([]time.Duration, len(programs))
	for round := range aloneRounds {
		for i, p := range programs {
			if took := runAlone(b, p); round == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	return slices.Min(best), slices.Max(best)
}

func runAlone(b *testing.B, p *ebpf.Program) time.Duration {
	b.Helper()
	_, took, err := p.Benchmark(tcpPacket(0), turnsPackets, nil)
	if err != nil {
		b.Fatal(err)
	}
	return took
}

func copies[T any](n int, load func() T) []T {
	all := make([]T, n)
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
		least = min(least, runAlone(b, dispatch))
	}
	return least
}
