// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPerPacket: the time of the statistics is the time of the runs, of which a
// packet may take two.
func TestPerPacket(t *testing.T) {
	m := &programMeter{overhead: 20}
	if got := m.perPacket(ran{1000 * time.Nanosecond, 20}, 10); got != 60 {
		t.Errorf("perPacket = %v ns, want 60", got)
	}
}

// TestPrivilegedProgramMeter: a program's runs are counted, those of others and
// of one from before are not, and one that reads the clock takes longer than an empty one.
func TestPrivilegedProgramMeter(t *testing.T) {
	requireRoot(t)
	load := func(name string, body ...asm.Instruction) *ebpf.Program {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: name, Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
			Instructions: append(body, asm.Mov.Imm(asm.R0, verdictNext), asm.Return()),
		})
		must.OK(t, err)
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	var busy []asm.Instruction
	for range 20 {
		busy = append(busy, asm.FnKtimeGetNs.Call())
	}
	counted, other := load("perfrigtest_a", busy...), load("perfrigother_a")
	m, err := meterPrograms("perfrigtest_")
	must.OK(t, err)
	defer func() { _ = m.Close() }()
	const runs = 20_000
	for _, p := range []*ebpf.Program{counted, other} {
		if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 14), Repeat: runs}); err != nil {
			t.Fatal(err)
		}
	}
	did, err := m.read()
	must.OK(t, err)
	if did.runs != runs {
		t.Errorf("%d runs are counted, want the %d of the one program", did.runs, runs)
	}
	if ns := m.perPacket(did, runs); m.overhead <= 0 || ns < m.overhead {
		t.Errorf("a program that reads the clock 20 times takes %.1f ns beyond the %.1f of an empty one", ns, m.overhead)
	}
}
