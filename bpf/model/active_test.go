// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

// What a flow would have beside so many is known within a third, on average, and
// beyond what the bits can tell it is nothing.
func TestActiveEqual(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, flows := range []int{0, 1, 2, 8, 16, 32} {
		const rounds = 500
		var sum float64
		for range rounds {
			var a Active
			for range flows {
				id := FlowID(random.Uint64())
				a.note(id, 5<<activePeriodShift)
				a.note(id, 5<<activePeriodShift)
			}
			sum += float64(a.equal()) / EstimateOne
		}
		if got, want := sum/rounds, 1/float64(flows+1); math.Abs(got/want-1) > 1.0/3 {
			t.Errorf("%d flows: %.4f of the cap, want about %.4f", flows, got, want)
		}
	}
	if a := (Active{Now: math.MaxUint64}); a.equal() != 0 {
		t.Errorf("with all bits set: %d, want 0", a.equal())
	}
}

// A flow counts in its period and in the next one.
func TestActivePeriods(t *testing.T) {
	const period = 1 << activePeriodShift
	var a Active
	a.note(0, 7*period)
	a.note(1<<58, 8*period)
	if want := (Active{Period: 8, Before: 1, Now: 2}); a != want {
		t.Errorf("after two periods: %+v, want %+v", a, want)
	}
	a.note(2<<58, 8*period-1) // by a CPU whose clock is behind
	if want := (Active{Period: 8, Before: 1, Now: 6}); a != want {
		t.Errorf("with a clock that is behind: %+v, want %+v", a, want)
	}
	a.note(0, 10*period)
	if want := (Active{Period: 10, Now: 1}); a != want {
		t.Errorf("after a period without heavy flows: %+v, want %+v", a, want)
	}
}
