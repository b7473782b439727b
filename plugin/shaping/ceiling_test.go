// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// perByte is what a rate makes of a byte, in 1/64 ns.
func perByte(r shaping.FixedRate) float64 { return float64(r.Mult) / float64(uint64(1)<<r.Shift) }

// The ceiling is above what the queue lets out, and by no more than the room that a
// burst and delays need.
func TestComputeCeiling(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit *shaping.Limit
		// most is the largest part of the cap that may arrive in a second.
		most float64
	}{
		"10M":      {strict(10e6), 1.08},
		"100M":     {strict(100e6), 1.08},
		"1G, htb":  {strict(1e9, queue(terms.QueueHTB)), 1.08},
		"flat":     {strict(100e6, flat), 1.08},
		"fq, flat": {strict(100e6, queue(terms.QueueFQ), flat), 1.2},
		"policing": {strict(100e6, queue(terms.QueueNone)), 1.5},
	} {
		p := compute(t, tc.limit, full)
		dp := &p.Datapath
		second := (64*float64(time.Second) + float64(dp.CeilingBurst)) / (perByte(dp.CeilingRate) * float64(tc.limit.Rate) / 8)
		if !p.Ceiling || second > tc.most {
			t.Errorf("%s: %.3f of the cap may arrive in a second, want a ceiling of at most %.3f", name, second, tc.most)
		}
		if a := p.Allowance; a.Excess != 20 || float64(tc.limit.Rate.Duration(a.AtOnce)) < float64(dp.CeilingBurst)/64+float64(tc.limit.Rate.Duration(1514)) {
			t.Errorf("%s: %+v is allowed, want no less than the ceiling lets through and one packet", name, a)
		}
		queued := dp.TotalBurst
		if p.Tree == nil || p.Queue == terms.QueueFQ {
			queued += dp.TotalHorizon + dp.LightTolerance
		}
		if dp.CeilingBurst < queued+64*50_000_000 || perByte(dp.CeilingRate)*1.01 > perByte(dp.TotalRate) {
			t.Errorf("%s: burst %d and rate %+v, want 50 ms more than %d and 2 %% more than %+v", name, dp.CeilingBurst, dp.CeilingRate, queued, dp.TotalRate)
		}
	}
	in, err := shaping.Compute(&shaping.Config{Ingress: strict(100e6)}, terms.Ingress, full, shaping.RandomMajor)
	if err != nil || in.Allowance.Excess != 10 {
		t.Errorf("without a ceiling %+v is allowed (%v), want 1 %%", in.Allowance, err)
	}
	off := strict(10e6)
	off.NoCeiling = true
	if p := compute(t, off, full); p.Ceiling || p.Datapath.CeilingBurst != 0 {
		t.Errorf("switched off: ceiling %v with a burst of %d, want none", p.Ceiling, p.Datapath.CeilingBurst)
	}
}
