// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Where packets may go past the host side, ingress moves into the pod, unless
// the host side is requested by name: then it is said that the cap does not
// hold.
func TestComputePastTheHostSide(t *testing.T) {
	t.Parallel()
	past := func(f shaping.Facts) shaping.Facts { f.PastHost = true; return f }
	noIFB := full
	noIFB.IFB = false
	const own, police, noQueue = `qdisc/tbf on ifb: "pw_class" at own-qdisc/auto redirect`, `auto/none on pod: "pw_police" at ingress/auto`, "no queue: this kernel has no ifb"
	for name, tc := range map[string]struct {
		dir   terms.Direction
		limit *shaping.Limit
		facts shaping.Facts
		where string
		holds bool
		note  string
	}{
		"auto":                          {terms.Ingress, strict(10e6), past(full), own, true, "ingress may go past"},
		"mode qdisc":                    {terms.Ingress, strict(10e6, mode(terms.ModeQdisc)), past(here), `qdisc/tbf on ifb: "pw_band" at egress/auto redirect`, true, "ingress may go past"},
		"no ifb":                        {terms.Ingress, strict(10e6), past(noIFB), police, false, noQueue},
		"queue by name, no ifb":         {terms.Ingress, strict(10e6, queue(terms.QueueTBF)), past(noIFB), police, false, noQueue},
		"the ifb preferred":             {terms.Ingress, strict(10e6, at(terms.PlacePreferIFB)), full, own, true, ""},
		"the ifb preferred, none there": {terms.Ingress, strict(10e6, at(terms.PlacePreferIFB)), noIFB, police, false, noQueue},
		"the host's place by name":      {terms.Ingress, strict(10e6, at(terms.PlaceHost)), past(full), `qdisc/tbf on host: "pw_class" at own-qdisc/auto`, false, "on the host side"},
		"a host-side mode by name":      {terms.Egress, strict(10e6, mode(terms.ModeTCXHostSide)), past(full), `tcx-hostside/none on host: "pw_police" at ingress/tcx`, false, "on the host side"},
		"a pod-side mode by name":       {terms.Ingress, strict(10e6, mode(terms.ModeTCXPodSide)), past(full), `tcx-podside/none on pod: "pw_police" at ingress/tcx`, false, "policing"},
		"egress":                        {terms.Egress, strict(10e6), past(full), `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, true, ""},
	} {
		p := must.Get(shaping.Compute(limiting(tc.dir, tc.limit), tc.dir, tc.facts, counter()))(t)
		notes := strings.Join(p.Notes, "\n")
		if got := where(p); got != tc.where || p.CapHolds != tc.holds || !strings.Contains(notes, tc.note) {
			t.Errorf("%s: %s, cap holds = %v, notes %q\nwant %s, %v, %q", name, got, p.CapHolds, notes, tc.where, tc.holds, tc.note)
		}
	}
	for name, l := range map[string]*shaping.Limit{
		"place by name":            strict(10e6, at(terms.PlaceIFB)),
		"mode by name":             strict(10e6, mode(terms.ModeQdisc)),
		"mode by name, preference": strict(10e6, mode(terms.ModeQdisc), at(terms.PlacePreferIFB)),
	} {
		facts := past(noIFB)
		facts.NoIFB = "the self-test failed"
		p, err := shaping.Compute(&shaping.Config{Ingress: l}, terms.Ingress, facts, counter())
		if field := (*shaping.FieldError)(nil); errors.As(err, &field) || err == nil || err.Error() != "the self-test failed" {
			t.Errorf("%s, no ifb: %v, %v, want an error with the reason alone", name, p, err)
		}
	}
}

// What is observed only has the policer's program where the pod's packets pass, and
// nothing that could hold them. Its meter is as wide as the queue of the limit.
func TestComputeObserved(t *testing.T) {
	t.Parallel()
	past := full
	past.PastHost = true
	for name, tc := range map[string]struct {
		limit *shaping.Limit
		dir   terms.Direction
		facts shaping.Facts
		where string
		would string
	}{
		"egress":  {strict(10e6), terms.Egress, full, `auto/none on pod: "pw_police" at egress/auto`, "have the queue tbf on the pod side"},
		"ingress": {strict(10e6), terms.Ingress, full, `auto/none on pod: "pw_police" at ingress/auto`, "have the queue tbf on the host side"},
		"ingress that goes past the host side": {
			strict(10e6), terms.Ingress, past,
			`auto/none on pod: "pw_police" at ingress/auto`, "have the queue tbf on the ifb side",
		},
		"without a queue": {strict(10e6), terms.Egress, bare, `auto/none on pod: "pw_police" at egress/auto`, "be policed"},
		"a hook by name": {
			strict(10e6, mode(terms.ModeTCXHostSide)), terms.Ingress, full,
			`tcx-hostside/none on host: "pw_police" at egress/tcx`, "have the queue tbf on the host side",
		},
	} {
		cfg := limiting(tc.dir, tc.limit)
		cfg.Observe = true
		p := must.Get(shaping.Compute(cfg, tc.dir, tc.facts, shaping.RandomMajor))(t)
		if got := where(p); got != tc.where || p.Tree != nil || p.Ceiling || p.CapHolds || !p.Observes() {
			t.Errorf("%s: %s, %+v, want %s, and nothing that holds packets", name, got, p, tc.where)
		}
		must.Have(t, name, strings.Join(p.Notes, "; "), "nothing is held", tc.would)
		cfg.Observe = false
		enforced := must.Get(shaping.Compute(cfg, tc.dir, tc.facts, shaping.RandomMajor))(t)
		if p.BurstBytes != enforced.BurstBytes || p.Datapath.TotalHorizon != enforced.Datapath.TotalHorizon || p.Datapath.TotalRate != enforced.Datapath.TotalRate {
			t.Errorf("%s: observed by %v, horizon %d, want %v and %d of the limit", name, p.BurstBytes, p.Datapath.TotalHorizon,
				enforced.BurstBytes, enforced.Datapath.TotalHorizon)
		}
	}
}

// perByte is what a rate makes of a byte, in 1/64 ns.
func perByte(r image.Rate) float64 { return float64(r.Mult) / float64(uint64(1)<<r.Shift) }

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
		"flat":     {strict(100e6, flat), 1.08},
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
		if p.Tree == nil {
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
