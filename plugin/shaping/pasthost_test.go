// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// Where packets may go past the host side, ingress moves into the pod, unless
// the host side is requested by name: then it is said that the cap does not
// hold.
func TestComputePastTheHostSide(t *testing.T) {
	t.Parallel()
	past := func(f shaping.Facts) shaping.Facts { f.IngressPastHost, f.EgressPastHost = true, true; return f }
	noIFB := full
	noIFB.IFB = false
	for name, tc := range map[string]struct {
		limit *shaping.Limit
		dir   terms.Direction
		facts shaping.Facts
		where string
		holds bool
		note  string
	}{
		"auto": {
			limit: strict(10e6), dir: terms.Ingress, facts: past(full),
			where: `qdisc/tbf on ifb: "pw_class" at own-qdisc/auto redirect`, holds: true, note: "ingress may go past",
		},
		"mode qdisc": {
			limit: strict(10e6, mode(terms.ModeQdisc)), dir: terms.Ingress, facts: past(here),
			where: `qdisc/tbf on ifb: "pw_band" at egress/auto redirect`, holds: true, note: "ingress may go past",
		},
		"no ifb": {
			limit: strict(10e6), dir: terms.Ingress, facts: past(noIFB),
			where: `auto/none on pod: "pw_police" at ingress/auto`, note: "no queue: this kernel has no ifb",
		},
		"queue by name, no ifb": {
			limit: strict(10e6, queue(terms.QueueTBF)), dir: terms.Ingress, facts: past(noIFB),
			where: `auto/none on pod: "pw_police" at ingress/auto`, note: "no queue: this kernel has no ifb",
		},
		"the ifb preferred": {
			limit: strict(10e6, at(terms.PlacePreferIFB)), dir: terms.Ingress, facts: full,
			where: `qdisc/tbf on ifb: "pw_class" at own-qdisc/auto redirect`, holds: true,
		},
		"the ifb preferred, none there": {
			limit: strict(10e6, at(terms.PlacePreferIFB)), dir: terms.Ingress, facts: noIFB,
			where: `auto/none on pod: "pw_police" at ingress/auto`, note: "no queue: this kernel has no ifb",
		},
		"the host's place by name": {
			limit: strict(10e6, at(terms.PlaceHost)), dir: terms.Ingress, facts: past(full),
			where: `qdisc/tbf on host: "pw_class" at own-qdisc/auto`, note: "on the host side",
		},
		"a host-side mode by name": {
			limit: strict(10e6, mode(terms.ModeTCXHostSide)), dir: terms.Egress, facts: past(full),
			where: `tcx-hostside/none on host: "pw_police" at ingress/tcx`, note: "on the host side",
		},
		"a pod-side mode by name": {
			limit: strict(10e6, mode(terms.ModeTCXPodSide)), dir: terms.Ingress, facts: past(full),
			where: `tcx-podside/none on pod: "pw_police" at ingress/tcx`, note: "policing",
		},
		"egress": {
			limit: strict(10e6), dir: terms.Egress, facts: past(full),
			where: `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, holds: true,
		},
	} {
		cfg := &shaping.Config{Egress: tc.limit}
		if tc.dir == terms.Ingress {
			cfg = &shaping.Config{Ingress: tc.limit}
		}
		p, err := shaping.Compute(cfg, tc.dir, tc.facts, counter())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
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
		if field := (*shaping.FieldError)(nil); !errors.As(err, &field) || !strings.HasSuffix(err.Error(), ": the self-test failed") {
			t.Errorf("%s, no ifb: %v, %v, want an error with the reason", name, p, err)
		}
	}
}
