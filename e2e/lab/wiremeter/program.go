// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package wiremeter

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Offsets in struct __sk_buff (include/uapi/linux/bpf.h).
const (
	skbLen      = 0
	skbProtocol = 16
	skbGSOSegs  = 164
)

// Offsets in an Ethernet frame with IPv4 or IPv6, and sizes.
const (
	ethLen         = 14
	ipv4Protocol   = ethLen + 9
	ipv6NextHeader = ethLen + 6
	ipv6End        = ethLen + 40
	tcpDataOffset  = 12
	udpLen         = 8
)

// tcxNext (TCX_NEXT) leaves the decision to whoever comes next.
const tcxNext = -1

// sizeofBucket is the size of [bucket] in the map.
const sizeofBucket = 16

// Registers that survive helper calls.
const (
	regCtx   = asm.R6
	regBytes = asm.R7
	regSegs  = asm.R8
	regHdr   = asm.R9 // header bytes of each segment
)

// Labels of the program.
const (
	labelIPv6    = "ipv6"
	labelL4      = "l4"
	labelUDP     = "udp"
	labelHeaders = "headers"
	labelCount   = "count"
	labelEnd     = "end"
)

// newProgram is written in assembly so that the meter shares not a line with
// what it measures, and needs no compiler.
func newProgram(buckets *ebpf.Map) (*ebpf.Program, error) {
	var insns asm.Instructions
	insns = append(insns,
		asm.Mov.Reg(regCtx, asm.R1),
		asm.LoadMem(regBytes, regCtx, skbLen, asm.Word),
		asm.LoadMem(regSegs, regCtx, skbGSOSegs, asm.Word),
		asm.JLE.Imm(regSegs, 1, labelCount),
	)
	insns = append(insns, headerLength()...)
	insns = append(insns,
		// Every segment but the first carries a copy of the headers.
		asm.Add.Imm(regSegs, -1).WithSymbol(labelHeaders),
		asm.Mul.Reg(regSegs, regHdr),
		asm.Add.Reg(regBytes, regSegs),
	)
	insns = append(insns, countBytes(buckets)...)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pwlab_wire", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: insns,
	})
	if err != nil {
		return nil, fmt.Errorf("load the wire meter: %w", err)
	}
	return prog, nil
}

// headerLength sets regHdr to the bytes before the payload of TCP or UDP over
// IPv4 with options or IPv6 without extension headers; other packets jump to
// labelCount as they are.
func headerLength() asm.Instructions {
	var insns asm.Instructions
	add := func(more ...asm.Instruction) { insns = append(insns, more...) }
	// R5, the L4 protocol, lives on the stack: helper calls clobber it.
	const l4Proto = -16
	add(
		asm.LoadMem(asm.R0, regCtx, skbProtocol, asm.Word),
		asm.JEq.Imm(asm.R0, int32(htons(unix.ETH_P_IPV6)), labelIPv6),
		asm.JNE.Imm(asm.R0, int32(htons(unix.ETH_P_IP)), labelCount),
	)
	add(loadByte(asm.Mov.Imm(asm.R2, ipv4Protocol))...)
	add(asm.StoreMem(asm.RFP, l4Proto, asm.R0, asm.DWord))
	add(loadByte(asm.Mov.Imm(asm.R2, ethLen))...)
	add(
		asm.And.Imm(asm.R0, 0x0F),
		asm.LSh.Imm(asm.R0, 2),
		asm.Mov.Reg(regHdr, asm.R0),
		asm.Add.Imm(regHdr, ethLen),
		asm.Ja.Label(labelL4),
	)
	v6 := loadByte(asm.Mov.Imm(asm.R2, ipv6NextHeader))
	v6[0] = v6[0].WithSymbol(labelIPv6)
	add(v6...)
	add(
		asm.StoreMem(asm.RFP, l4Proto, asm.R0, asm.DWord),
		asm.Mov.Imm(regHdr, ipv6End),
		asm.LoadMem(asm.R0, asm.RFP, l4Proto, asm.DWord).WithSymbol(labelL4),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_UDP, labelUDP),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_TCP, labelCount),
	)
	tcp := loadByte(asm.Mov.Reg(asm.R2, regHdr))
	tcp = append(asm.Instructions{tcp[0], asm.Add.Imm(asm.R2, tcpDataOffset)}, tcp[1:]...)
	add(tcp...)
	add(
		asm.RSh.Imm(asm.R0, 4),
		asm.LSh.Imm(asm.R0, 2),
		asm.Add.Reg(regHdr, asm.R0),
		asm.Ja.Label(labelHeaders),
		asm.Add.Imm(regHdr, udpLen).WithSymbol(labelUDP),
	)
	return insns
}

// loadByte reads the byte of the packet at R2, which the first instruction
// sets, into R0. A packet that is too short is counted as it is.
func loadByte(setR2 asm.Instruction) asm.Instructions {
	return asm.Instructions{
		setR2,
		asm.Mov.Reg(asm.R1, regCtx),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, 1),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, labelCount),
		asm.LoadMem(asm.R0, asm.RFP, -8, asm.Byte),
	}
}

// countBytes adds regBytes and one packet to the bucket of this millisecond.
func countBytes(buckets *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.FnKtimeGetNs.Call().WithSymbol(labelCount),
		asm.Div.Imm(asm.R0, nanosPerBucket),
		asm.And.Imm(asm.R0, bucketCount-1),
		asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, buckets.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, labelEnd),
		asm.AddAtomic.Mem(asm.R0, regBytes, asm.DWord, 0),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 8),
		asm.Mov.Imm(asm.R0, tcxNext).WithSymbol(labelEnd),
		asm.Return(),
	}
}

// htons converts to network order as seen by a little-endian machine, the only
// kind that podweir's objects are built for.
func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.LittleEndian.Uint16(b[:])
}
