// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package testutil

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Program is a loaded tc program of a test.
type Program struct {
	FD int
	ID uint32
}

// VerdictProgram loads a tc program that answers verdict to every packet.
func VerdictProgram(tb testing.TB, name string, verdict int32) Program {
	tb.Helper()
	return load(tb, name, asm.Instructions{
		asm.Mov.Imm(asm.R0, verdict),
		asm.Return(),
	})
}

// LargeProgram loads a tc program that answers 0 (TCX_PASS) to packets of more bytes and lets
// all others on.
func LargeProgram(tb testing.TB, name string, bytes int32) Program {
	tb.Helper()
	return load(tb, name, asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // __sk_buff.len
		asm.Mov.Imm(asm.R0, 0),
		asm.JGT.Imm(asm.R2, bytes, "end"),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return().WithSymbol("end"),
	})
}

// ClassProgram loads a tc program that answers the class with this minor to
// every packet.
func ClassProgram(tb testing.TB, name string, minor int32) Program {
	tb.Helper()
	const tcClassID = 72 // offsetof(struct __sk_buff, tc_classid)
	return load(tb, name, asm.Instructions{
		// By a register: before 6.5 no constant can be stored into a context.
		asm.Mov.Imm(asm.R2, minor),
		asm.StoreMem(asm.R1, tcClassID, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	})
}

// RedirectProgram loads a tc program that redirects every packet to the device
// with this ifindex.
func RedirectProgram(tb testing.TB, name string, ifindex int32) Program {
	tb.Helper()
	return load(tb, name, asm.Instructions{
		asm.Mov.Imm(asm.R1, ifindex),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
	})
}

func load(tb testing.TB, name string, ins asm.Instructions) Program {
	tb.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, Instructions: ins, License: "GPL"})
	if err != nil {
		tb.Fatalf("load program %s: %v", name, err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	info, err := p.Info()
	if err != nil {
		tb.Fatal(err)
	}
	id, _ := info.ID()
	return Program{FD: p.FD(), ID: uint32(id)}
}
