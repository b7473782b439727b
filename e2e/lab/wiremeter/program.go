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
	skbIfindex  = 40
	skbGSOSegs  = 164
)

// Offsets in an Ethernet frame with IPv4 or IPv6, and sizes.
const (
	ethLen         = 14
	ipv4Protocol   = ethLen + 9
	ipv6NextHeader = ethLen + 6
	ipv6End        = ethLen + 40
	hopByHopLen    = ipv6End + 1
	hopByHopOption = ipv6End + 2
	jumboLen       = 8
	tcpDataOffset  = 12
	udpLen         = 8
)

// jumboOption (IPV6_TLV_JUMBO, RFC 2675) marks the header that BIG TCP puts
// into packets of more than 64 kB (net/ipv6/ip6_output.c, ip6_xmit) and takes
// out again when it segments them: it never is on a wire. Newer kernels do
// without it.
const jumboOption = 0xC2

// tcxNext (TCX_NEXT, TC_ACT_UNSPEC) leaves the decision to whoever comes next.
// To a socket filter it would mean the whole packet, so that answers
// dropPacket.
const (
	tcxNext    = -1
	dropPacket = 0
)

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
	labelOptions = "options"
	labelL4      = "l4"
	labelUDP     = "udp"
	labelHeaders = "headers"
	labelCount   = "count"
	labelEnd     = "end"
)

// newProgram is written in assembly so that the meter shares not a line with
// what it measures, and needs no compiler. A socket filter counts what arrives
// on one device, a classifier everything.
func newProgram(buckets *ebpf.Map, kind ebpf.ProgramType, ifindex int) (*ebpf.Program, error) {
	var insns asm.Instructions
	insns = append(insns, asm.Mov.Reg(regCtx, asm.R1))
	verdict := int32(tcxNext)
	if kind == ebpf.SocketFilter {
		verdict = dropPacket
		insns = append(insns,
			asm.LoadMem(asm.R0, regCtx, skbIfindex, asm.Word),
			asm.JNE.Imm(asm.R0, int32(ifindex), labelEnd),
		)
	}
	insns = append(insns,
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
	insns = append(insns, countBytes(buckets, verdict)...)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pwlab_wire", Type: kind, License: "Dual BSD/GPL", Instructions: insns,
	})
	if err != nil {
		return nil, fmt.Errorf("load the wire meter: %w", err)
	}
	return prog, nil
}

// headerLength sets regHdr to the bytes before the payload of TCP or UDP over
// IPv4 with options or IPv6 with at most a hop-by-hop header; other packets
// jump to labelCount as they are. A jumbo header is taken off regBytes.
func headerLength() asm.Instructions {
	var insns asm.Instructions
	add := func(more ...asm.Instruction) { insns = append(insns, more...) }
	// The L4 protocol and the length of a jumbo header live on the stack:
	// helper calls clobber R1 to R5.
	const (
		l4Proto = -16
		jumbo   = -24
	)
	add(
		asm.Mov.Imm(asm.R0, 0),
		asm.StoreMem(asm.RFP, jumbo, asm.R0, asm.DWord),
	)
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
		asm.JNE.Imm(asm.R0, unix.IPPROTO_HOPOPTS, labelL4),
	)
	add(loadByte(asm.Mov.Imm(asm.R2, ipv6End))...)
	add(asm.StoreMem(asm.RFP, l4Proto, asm.R0, asm.DWord))
	add(loadByte(asm.Mov.Imm(asm.R2, hopByHopOption))...)
	add(
		asm.JNE.Imm(asm.R0, jumboOption, labelOptions),
		asm.Mov.Imm(asm.R0, jumboLen),
		asm.StoreMem(asm.RFP, jumbo, asm.R0, asm.DWord),
		asm.Sub.Imm(regBytes, jumboLen),
		asm.Ja.Label(labelL4),
	)
	options := loadByte(asm.Mov.Imm(asm.R2, hopByHopLen))
	options[0] = options[0].WithSymbol(labelOptions)
	add(options...)
	add(
		// In units of 8 bytes, of which the first is not counted (RFC 8200).
		asm.Add.Imm(asm.R0, 1),
		asm.LSh.Imm(asm.R0, 3),
		asm.Add.Reg(regHdr, asm.R0),
		asm.LoadMem(asm.R0, asm.RFP, l4Proto, asm.DWord).WithSymbol(labelL4),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_UDP, labelUDP),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_TCP, labelCount),
	)
	tcp := loadByte(asm.Mov.Reg(asm.R2, regHdr))
	tcp = append(asm.Instructions{
		tcp[0], asm.Add.Imm(asm.R2, tcpDataOffset),
		asm.LoadMem(asm.R0, asm.RFP, jumbo, asm.DWord), asm.Add.Reg(asm.R2, asm.R0),
	}, tcp[1:]...)
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
func countBytes(buckets *ebpf.Map, verdict int32) asm.Instructions {
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
		asm.Mov.Imm(asm.R0, verdict).WithSymbol(labelEnd),
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
