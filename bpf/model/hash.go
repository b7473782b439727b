// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import "encoding/binary"

// The hash as in bpf/lib/abi.h and bpf/lib/hash.h.
const (
	// HashKeys is the number of keys of each half: one per word, and a constant.
	HashKeys = 11
	// KeyConstant is the place of the constant. Before it are the keys of words
	// that only IPv6 has.
	KeyConstant = 6

	sketchRows = 3
	columnBits = 9
	columns    = 1 << columnBits
	// recentColumns is the width of [Recent].
	recentColumns = 1 << 7
	slotShift     = flowRows * flowColumnBits
)

// Keys are the random keys of the flow hash.
type Keys [HashKeys][2]uint64

// FlowID is the 64-bit flow hash.
type FlowID uint64

// Hash is the multilinear hash of the flow under the keys, in two halves.
func (k *Keys) Hash(f *Flow) FlowID {
	words := [HashKeys]uint32{KeyConstant: 1}
	word := func(i int, b []byte) { words[i] = binary.LittleEndian.Uint32(b) }
	// What is the same in each IPv4 flow is left out.
	if f.EtherType == etherIPv6 {
		for i := range 3 {
			word(i, f.Src[4*i:])
			word(3+i, f.Dst[4*i:])
		}
	}
	word(KeyConstant+1, f.Src[12:])
	word(KeyConstant+2, f.Dst[12:])
	words[KeyConstant+3] = uint32(swap(f.SrcPort)) | uint32(swap(f.DstPort))<<16
	words[KeyConstant+4] = uint32(f.Protocol) | uint32(f.Kind)<<8 | uint32(swap(f.EtherType))<<16
	var sum [2]uint64
	for i, w := range words {
		sum[0] += k[i][0] * uint64(w)
		sum[1] += k[i][1] * uint64(w)
	}
	return FlowID(sum[0]>>32<<32 | sum[1]>>32)
}

// swap turns a number into its network byte order as a little-endian machine
// reads it.
func swap(v uint16) uint16 { return v<<8 | v>>8 }

func (id FlowID) row(row int) uint32 {
	return uint32(id>>32>>(row*columnBits)) % columns
}

// place is the column of a row of the flow table.
func (id FlowID) place(row int) uint32 {
	return uint32(id) >> (row * flowColumnBits) % flowColumns
}

// mark tells flows of one place of the flow table apart.
func (id FlowID) mark() uint32 { return uint32(id) >> flowMarkShift }

// slot is a candidate slot of the heavy-flow table, choice 0 or 1.
func (id FlowID) slot(choice uint32) uint32 {
	return (uint32(id)>>slotShift ^ choice*(HeavySlots/2+1)) % HeavySlots
}
