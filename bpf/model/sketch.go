// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import "math"

// Sketch is the count-min sketch with conservative update and decay.
type Sketch struct {
	Cells [sketchRows][columns]Cell
}

// Recent is what the heavy flows of elephants sent lately.
type Recent struct {
	Cells [sketchRows][recentColumns]Cell
}

// Newcomers is what heavy packets of new flows amount to, which count as one flow.
type Newcomers Cell

func (n *Newcomers) update(tick uint32, cost uint64, shift uint32) uint32 {
	est := min(uint64(Decay(n.Est, tick-n.Tick, shift))+cost, math.MaxUint32)
	*n = Newcomers{Est: uint32(est), Tick: tick}
	return n.Est
}

// Cell is an estimate as of a tick.
type Cell struct {
	Est, Tick uint32
}

// Update charges cost to the flow at tick and returns its new estimate, which
// saturates at 2^32-1. Estimates halve in 2^shift ticks.
func (s *Sketch) Update(id FlowID, tick uint32, cost uint64, shift uint32) uint32 {
	cells := s.of(id)
	return cells.charge(tick, cost, shift)
}

// With is what Update would return, and charges nothing.
func (s *Sketch) With(id FlowID, tick uint32, cost uint64, shift uint32) uint32 {
	cells := s.of(id)
	return cells.with(tick, cost, shift)
}

func (s *Sketch) of(id FlowID) (cells cellsOf) {
	for row := range s.Cells {
		cells[row] = &s.Cells[row][id.row(row)]
	}
	return cells
}

// Update is [Sketch.Update].
func (r *Recent) Update(id FlowID, tick uint32, cost uint64, shift uint32) uint32 {
	var cells cellsOf
	for row := range r.Cells {
		cells[row] = &r.Cells[row][id.row(row)%recentColumns]
	}
	return cells.charge(tick, cost, shift)
}

// cellsOf are the cells of a flow, one of each row.
type cellsOf [sketchRows]*Cell

func (cells *cellsOf) charge(tick uint32, cost uint64, shift uint32) uint32 {
	now := cells.with(tick, cost, shift)
	for _, c := range cells {
		if Decay(c.Est, tick-c.Tick, shift) < now {
			*c = Cell{Est: now, Tick: tick}
		}
	}
	return now
}

func (cells *cellsOf) with(tick uint32, cost uint64, shift uint32) uint32 {
	least := uint64(math.MaxUint32)
	for _, c := range cells {
		least = min(least, uint64(Decay(c.Est, tick-c.Tick, shift)))
	}
	return uint32(min(least+cost, math.MaxUint32))
}
