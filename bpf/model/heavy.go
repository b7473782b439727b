// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

// HeavySlots is the size of the heavy-flow table.
const HeavySlots = 16

// heavyStaleNS is for how long a silent flow keeps its slot.
const heavyStaleNS = 2_000_000_000

// Heavy is one slot of the table of heavy flows; ID 0 is an empty one.
type Heavy struct {
	ID                    FlowID
	Bytes                 uint64
	FirstSeenNS, LastSeen uint64
	Flow                  Flow
}

// HeavyTable is the table of the pod's current heavy flows.
type HeavyTable struct {
	Slots [HeavySlots]Heavy
	// Unlisted are the bytes of flows that found no slot.
	Unlisted uint64
}

// record counts a packet, and returns what was counted of the flow before, in bytes.
func (t *HeavyTable) record(id FlowID, f *Flow, bytes uint32, nowNS uint64) uint64 {
	if id <= 1 {
		id |= 2
	}
	for choice := range uint32(2) {
		if s := &t.Slots[id.slot(choice)]; s.ID == id {
			s.Bytes += uint64(bytes)
			s.LastSeen = nowNS
			return s.Bytes - uint64(bytes)
		}
	}
	for choice := range uint32(2) {
		s := &t.Slots[id.slot(choice)]
		if s.ID != 0 && int64(nowNS-s.LastSeen) < heavyStaleNS {
			continue
		}
		*s = Heavy{ID: id, Bytes: uint64(bytes), FirstSeenNS: nowNS, LastSeen: nowNS, Flow: *f}
		return 0
	}
	t.Unlisted += uint64(bytes)
	return 0
}
