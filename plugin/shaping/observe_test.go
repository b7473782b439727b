// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// What is observed only has the policer's program where the pod's packets pass, and
// nothing that could hold them. Its meter is as wide as the queue of the limit.
func TestComputeObserved(t *testing.T) {
	t.Parallel()
	past := full
	past.IngressPastHost = true
	for name, tc := range map[string]struct {
		limit *shaping.Limit
		dir   terms.Direction
		facts shaping.Facts
		where string
		would string
	}{
		"egress": {
			strict(10e6), terms.Egress, full,
			`auto/none on pod: "pw_police" at egress/auto`, "have the queue tbf on the pod side",
		},
		"ingress": {
			strict(10e6), terms.Ingress, full,
			`auto/none on pod: "pw_police" at ingress/auto`, "have the queue tbf on the host side",
		},
		"ingress that goes past the host side": {
			strict(10e6), terms.Ingress, past,
			`auto/none on pod: "pw_police" at ingress/auto`, "have the queue tbf on the ifb side",
		},
		"without a queue": {
			strict(10e6), terms.Egress, bare,
			`auto/none on pod: "pw_police" at egress/auto`, "be policed",
		},
		"a hook by name": {
			strict(10e6, mode(terms.ModeTCXHostSide)), terms.Ingress, full,
			`tcx-hostside/none on host: "pw_police" at egress/tcx`, "have the queue tbf on the host side",
		},
	} {
		cfg := &shaping.Config{Observe: true, Egress: tc.limit}
		if tc.dir == terms.Ingress {
			cfg.Egress, cfg.Ingress = nil, tc.limit
		}
		p, err := shaping.Compute(cfg, tc.dir, tc.facts, shaping.RandomMajor)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := where(p); got != tc.where || p.Tree != nil || p.Ceiling || p.CapHolds || !p.Observes() {
			t.Errorf("%s: %s, %+v, want %s, and nothing that holds packets", name, got, p, tc.where)
		}
		if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, "nothing is held") || !strings.Contains(notes, tc.would) {
			t.Errorf("%s: notes %q, want what would be: %s", name, notes, tc.would)
		}
		cfg.Observe = false
		enforced, err := shaping.Compute(cfg, tc.dir, tc.facts, shaping.RandomMajor)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.BurstBytes != enforced.BurstBytes || p.Datapath.TotalHorizon != enforced.Datapath.TotalHorizon || p.Datapath.TotalRate != enforced.Datapath.TotalRate {
			t.Errorf("%s: observed by %v, horizon %d, want %v and %d of the limit", name, p.BurstBytes, p.Datapath.TotalHorizon,
				enforced.BurstBytes, enforced.Datapath.TotalHorizon)
		}
	}
}
