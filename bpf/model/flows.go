// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

// The table of flows as in bpf/lib/flows.h.
const (
	flowRows       = 2
	flowColumnBits = 8
	flowColumns    = 1 << flowColumnBits
	// flowUnitShift makes units of the table's time, 8.4 ms, of ticks.
	flowUnitShift = 3
	flowTimeBits  = 18
	flowTimeMask  = 1<<flowTimeBits - 1
	flowAgeShift  = flowTimeBits
	flowMarkShift = flowAgeShift + 2
	// flowOld is the age from which a flow is established.
	flowOld = 3
	// flowKept is how long a flow that sends nothing is remembered, in units.
	flowKept = 256
	// flowMaxHold is the longest hold in units.
	flowMaxHold = 1 << 16
)

// FlowTable remembers the flows of the last two seconds: which are held in the
// second band, and which are established.
type FlowTable struct {
	Words [flowRows][flowColumns]uint32
}

// known is what the table has of a flow, or whom it would displace.
type known struct {
	row   int
	found bool
	// held is of the flow itself.
	held bool
	// rank of whoever has the place: who is displaced first has the lowest.
	rank uint32
	// age is with this packet.
	age uint32
	at  uint32
}

func flowUnit(tick uint32) uint32 { return tick >> flowUnitShift }

// flowHold is a hold in units, rounded up, and one for the unit that has begun.
func flowHold(holdTicks uint32) uint32 {
	return min(holdTicks>>flowUnitShift, flowMaxHold) + 2
}

// ahead is how far the time of a word is ahead of now, in units.
func ahead(word, unit uint32) int32 {
	return int32((word-unit)<<(32-flowTimeBits)) >> (32 - flowTimeBits)
}

// find looks a flow up that would be held for so long now, where the longest
// hold is that.
func (t *FlowTable) find(id FlowID, unit, hold, longest uint32) known {
	var best known
	for row := range t.Words {
		word := t.Words[row][id.place(row)]
		d, age := ahead(word, unit), word>>flowAgeShift&flowOld
		live := d > -flowKept && d <= int32(longest+TickSkew>>flowUnitShift)
		k := known{row: row, held: d > 0, at: word & flowTimeMask}
		if live {
			k.rank = 1 + age
			if k.held && age == flowOld {
				k.rank++
			}
		}
		k.found = live && word>>flowMarkShift == id.mark()
		if k.found {
			k.age = grown(age, d, int32(hold))
			return k
		}
		k.held = false
		if row == 0 || k.rank < best.rank {
			best = k
		}
	}
	return best
}

// counts says whether the sketch counts a packet of the flow: not the first of a new
// one, but all of one that both places are closed to.
func (t *FlowTable) counts(id FlowID) bool {
	closed := true
	for row := range t.Words {
		word := t.Words[row][id.place(row)]
		if word>>flowMarkShift == id.mark() {
			return true
		}
		closed = closed && word>>flowAgeShift&flowOld == flowOld
	}
	return closed
}

// grown is the age with this packet: the second packet counts at once, then
// it takes later units, which count from the begin of its hold while the flow is
// held.
func grown(age uint32, ahead, hold int32) uint32 {
	passed, least := -ahead, min(int32(age), 1)
	if ahead > 0 {
		passed, least = hold-ahead, int32(age)
	}
	if passed >= least && age < flowOld {
		return age + 1
	}
	return age
}

// keep writes that the flow was seen, and until when it is held.
func (t *FlowTable) keep(id FlowID, k known, at uint32, big bool) {
	highest := uint32(flowOld)
	if big {
		highest++
	}
	if k.found || k.rank <= highest {
		t.Words[k.row][id.place(k.row)] = id.mark()<<flowMarkShift | k.age<<flowAgeShift | at&flowTimeMask
	}
}
