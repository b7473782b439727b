// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package coexist_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Answers of a program on a shared hook (include/uapi/linux/bpf.h).
const (
	answerPass = 0
	answerDrop = 2
)

// Offsets: of struct __sk_buff, and in an Ethernet frame with an IPv4 header
// without options.
const (
	skbProtocol  = 16
	frameIPv4Dst = 14 + 16
	frameUDPDst  = 14 + 20 + 2
)

// network is a number as a load of its bytes in network order gives it.
func network16(n uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n)))
}

// answer ends a program with a constant.
func answer(verdict int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}
}

// toPeer ends a program with bpf_redirect_peer to the pod behind a device.
func toPeer(ifindex int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirectPeer.Call(), asm.Return(),
	}
}

// toNeighbour ends a program with bpf_redirect_neigh out of a device.
func toNeighbour(ifindex int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, 0),
		asm.FnRedirectNeigh.Call(), asm.Return(),
	}
}

// policyProgram drops UDP packets to the denied port and ends as it is told for
// other IPv4 packets to an address, any if it is "". For the rest it answers 0.
func policyProgram(t *testing.T, name, to string, allow asm.Instructions) *ebpf.Program {
	t.Helper()
	load := func(offset, size int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, offset),
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, size),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, "pass"),
		}
	}
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, skbProtocol, asm.Word),
		asm.JNE.Imm(asm.R2, network16(unix.ETH_P_IP), "pass"),
	}
	if to != "" {
		a := netip.MustParseAddr(to).As4()
		ins = append(ins, load(frameIPv4Dst, 4)...)
		ins = append(ins, asm.LoadMem(asm.R2, asm.R10, -8, asm.Word),
			asm.JNE.Imm32(asm.R2, int32(binary.NativeEndian.Uint32(a[:])), "pass"))
	}
	ins = append(ins, load(frameUDPDst, 2)...)
	ins = append(ins, asm.LoadMem(asm.R2, asm.R10, -8, asm.Half),
		asm.JEq.Imm(asm.R2, network16(deniedPort), "drop"))
	ins = append(ins, allow...)
	drop, pass := answer(answerDrop), answer(answerPass)
	drop[0] = drop[0].WithSymbol("drop")
	pass[0] = pass[0].WithSymbol("pass")
	return loadProgram(t, name, append(append(ins, drop...), pass...))
}

func loadProgram(t *testing.T, name string, ins asm.Instructions) *ebpf.Program {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, Instructions: ins, License: "GPL"})
	if err != nil {
		t.Fatalf("load %s: %v", name, err)
	}
	t.Cleanup(func() { _ = prog.Close() })
	return prog
}

// attachTCX attaches a program until the end of the test.
func attachTCX(t *testing.T, ns *testutil.NetNS, ifindex int, at ebpf.AttachType, prog *ebpf.Program, where link.Anchor) link.Link {
	t.Helper()
	var l link.Link
	err := ns.Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: at, Anchor: where})
		return err
	})
	must.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}
