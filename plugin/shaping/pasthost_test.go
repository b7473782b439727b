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
			strict(10e6), terms.Ingress, past(full),
			`qdisc/tbf on ifb: "pw_class" at own-qdisc/auto redirect`, true, "ingress may go past",
		},
		"mode qdisc": {
			strict(10e6, mode(terms.ModeQdisc)), terms.Ingress, past(here),
			`qdisc/tbf on ifb: "pw_band" at egress/auto redirect`, true, "ingress may go past",
		},
		"no ifb": {
			strict(10e6), terms.Ingress, past(noIFB),
			`auto/none on pod: "pw_police" at ingress/auto`, false, "no queue: this kernel has no ifb",
		},
		"queue by name, no ifb": {
			strict(10e6, queue(terms.QueueTBF)), terms.Ingress, past(noIFB),
			`auto/none on pod: "pw_police" at ingress/auto`, false, "no queue: this kernel has no ifb",
		},
		"the ifb preferred": {
			strict(10e6, at(terms.PlacePreferIFB)), terms.Ingress, full,
			`qdisc/tbf on ifb: "pw_class" at own-qdisc/auto redirect`, true, "",
		},
		"the ifb preferred, none there": {
			strict(10e6, at(terms.PlacePreferIFB)), terms.Ingress, noIFB,
			`auto/none on pod: "pw_police" at ingress/auto`, false, "no queue: this kernel has no ifb",
		},
		"the host's place by name": {
			strict(10e6, at(terms.PlaceHost)), terms.Ingress, past(full),
			`qdisc/tbf on host: "pw_class" at own-qdisc/auto`, false, "on the host side",
		},
		"a host-side mode by name": {
			strict(10e6, mode(terms.ModeTCXHostSide)), terms.Egress, past(full),
			`tcx-hostside/none on host: "pw_police" at ingress/tcx`, false, "on the host side",
		},
		"a pod-side mode by name": {
			strict(10e6, mode(terms.ModeTCXPodSide)), terms.Ingress, past(full),
			`tcx-podside/none on pod: "pw_police" at ingress/tcx`, false, "policing",
		},
		"egress": {
			strict(10e6), terms.Egress, past(full),
			`qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, true, "",
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
