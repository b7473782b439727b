// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import "encoding/binary"

// The hash as in bpf/lib/abi.h and bpf/lib/hash.h.
const (
	// HashKeys is the number of keys of each half: a constant and one per word.
	HashKeys = 11

	sketchRows = 3
	columnBits = 9
	columns    = 1 << columnBits
	// recentColumns is the width of [Recent].
	recentColumns = 1 << 7
	slotShift     = flowRows * flowColumnBits
)

// Keys are the random keys of the flow hash.
type Keys [2][HashKeys]uint64

// FlowID is the 64-bit flow hash.
type FlowID uint64

// Hash is the multilinear hash of the flow under the keys, in two halves.
func (k *Keys) Hash(f *Flow) FlowID {
	return FlowID(half(&k[0], f))<<32 | FlowID(half(&k[1], f))
}

func half(keys *[HashKeys]uint64, f *Flow) uint32 {
	var words [HashKeys - 1]uint32
	for i := range 4 {
		words[i] = binary.LittleEndian.Uint32(f.Src[4*i:])
		words[4+i] = binary.LittleEndian.Uint32(f.Dst[4*i:])
	}
	if f.EtherType != etherIPv6 {
		// What is the same in each IPv4 flow is left out.
		words[0], words[1], words[2], words[4], words[5], words[6] = 0, 0, 0, 0, 0, 0
	}
	words[8] = uint32(swap(f.SrcPort)) | uint32(swap(f.DstPort))<<16
	words[9] = uint32(f.Protocol) | uint32(f.Kind)<<8 | uint32(swap(f.EtherType))<<16
	sum := keys[0]
	for i, w := range words {
		sum += keys[i+1] * uint64(w)
	}
	return uint32(sum >> 32)
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
