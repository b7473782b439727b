// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What the meters have counted takes a tenth of the time at ten times the rate, and as
// long as before at the same rate and at a lower one.
func TestMetersOfAnotherRate(t *testing.T) {
	n := inMemory(t, 1)
	dir := n.interfaceDir(t, "a")
	configure := func(total, light uint64, shift uint32) *image.State {
		t.Helper()
		// With a tenth of the multiplier, or with a larger shift.
		p := &shaping.Params{Direction: terms.Egress, Datapath: shaping.Datapath{
			Policy:    terms.PolicyStrict,
			TotalRate: shaping.FixedRate{Mult: total, Shift: shift},
			LightRate: shaping.FixedRate{Mult: light, Shift: shift},
		}}
		must.OK(t, n.Configure(dir, p, nil, 0))
		s, err := n.mustFind(dir, terms.Egress)
		must.OK(t, err)
		return &s.State
	}
	const debt = 100 * time.Second
	for name, c := range map[string]struct {
		total, light     uint64
		shift            uint32
		wantTotal, wants time.Duration
	}{
		"ten times the rate":           {100, 200, 10, debt / 10, debt / 10},
		"half the multiplier and unit": {500, 1000, 11, debt / 4, debt / 4},
		"the same":                     {1000, 2000, 10, debt, debt},
		"a lower rate":                 {8000, 16000, 10, debt, debt},
		"another light share":          {1000, 1000, 10, debt, debt / 2},
	} {
		t.Run(name, func(t *testing.T) {
			state := configure(1000, 2000, 10)
			tat := (monotonic() + uint64(debt)) << meterShift
			state.TotalTat, state.ControlTat, state.WaitClock = tat, tat, tat
			state.LightTat, state.EstablishedTat, state.CeilingTat = tat, tat, 7
			configure(c.total, c.light, c.shift)
			now := monotonic() << meterShift
			for meter, m := range map[string]struct {
				tat  uint64
				want time.Duration
			}{
				"total": {state.TotalTat, c.wantTotal}, "control": {state.ControlTat, c.wantTotal},
				"wait": {state.WaitClock, c.wantTotal}, "light": {state.LightTat, c.wants},
				"established": {state.EstablishedTat, c.wants},
			} {
				level := time.Duration(int64(m.tat-now) >> meterShift)
				if off := m.want - level; off < 0 || off > time.Second {
					t.Errorf("%s meter is %v ahead, want %v", meter, level, m.want)
				}
			}
			if state.CeilingTat != 7 {
				t.Error("the ceiling, which looks at its rate itself, was changed")
			}
		})
	}
}

// A meter that the clock has passed stays as it is.
func TestMetersOfAnotherRateInThePast(t *testing.T) {
	for _, was := range []uint64{0, 99, 100} {
		tat := was
		if shorten(&tat, 100, 0.5); tat != was {
			t.Errorf("a meter at %d is at %d afterwards, where now is 100", was, tat)
		}
	}
}

// What packets add meanwhile is not lost, other than the part that counts at the old rate.
func TestMetersOfAnotherRateUnderTraffic(t *testing.T) {
	const now, debt, packets, part = 1 << 40, 1 << 30, 1_000_000, 0.5
	tat := uint64(now + debt)
	var traffic sync.WaitGroup
	traffic.Go(func() {
		for range packets {
			atomic.AddUint64(&tat, 2)
		}
	})
	shorten(&tat, now, part)
	traffic.Wait()
	if level := tat - now; level < debt/2+packets || level > debt/2+2*packets {
		t.Errorf("the meter is %d ahead, want %d and from %d to %d of the packets", level, debt/2, packets, 2*packets)
	}
}
