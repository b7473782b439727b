// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// TestParseDeferred: what a pod asks for can be left to another shaper, and what
// the network's configuration asks for cannot.
func TestParseDeferred(t *testing.T) {
	t.Parallel()
	left := func(d terms.Direction, rate int) shaping.Deferred {
		out := shaping.Deferred{Direction: d, To: terms.ShaperCilium}
		l := limit(rate, nil)
		out.Rate = l.Rate
		return out
	}
	const runtime = `"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295,"egressRate":2000000,"egressBurst":4294967295}`
	for name, tc := range map[string]struct {
		runtime, keys   string
		egress, ingress *shaping.Limit
		left            []shaping.Deferred
	}{
		"the runtime's rates": {
			runtime: runtime, keys: `"shaper":"cilium","egressRate":"10M"`,
			left: []shaping.Deferred{left(terms.Egress, 2e6), left(terms.Ingress, 1e6)},
		},
		"annotations, in one direction": {
			runtime: annotations(`"kubernetes.io/egress-bandwidth":"7M","kubernetes.io/ingress-bandwidth":"3M"`),
			keys:    `"shaper":"cilium","ingressShaper":"podweir"`,
			ingress: limit(3e6, nil), left: []shaping.Deferred{left(terms.Egress, 7e6)},
		},
		"not the network's own rates": {
			runtime: annotations(`"kubernetes.io/egress-bandwidth":"7M"`), keys: `"shaper":"cilium","egressRate":"10M","ingressRate":"1M"`,
			ingress: limit(1e6, nil), left: []shaping.Deferred{left(terms.Egress, 7e6)},
		},
		"not without a word": {runtime: runtime, egress: limit(2e6, nil), ingress: limit(1e6, nil)},
		"no rate":            {keys: `"shaper":"cilium"`},
	} {
		got, err := netconf.Parse(netconf.Add, input(tc.runtime, tc.keys))
		if err != nil || len(got.Warnings) > 0 {
			t.Errorf("%s: Parse() = %v, warnings %q", name, err, got.Warnings)
		}
		want := shaping.Config{Egress: tc.egress, Ingress: tc.ingress, Deferred: tc.left, Decisions: got.Shaping.Decisions}
		if diff := cmp.Diff(want, got.Shaping, anyOrigin); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// anyOrigin compares limits wherever their rates come from.
var anyOrigin = cmpopts.IgnoreFields(shaping.Limit{}, "Standard")

// A limit says whether other software may enforce it, too: then the pod asks for it by an
// annotation of Kubernetes.
func TestStandardRates(t *testing.T) {
	const standard, own = `"kubernetes.io/egress-bandwidth":"7M"`, `"podweir.io/egress-rate":"8M"`
	for name, tc := range map[string]struct {
		runtime, keys string
		want          bool
	}{
		"by the runtime":                {`"bandwidth":{"egressRate":2000000}`, "", true},
		"by the annotation":             {annotations(standard), "", true},
		"podweir's own annotation":      {annotations(own), "", false},
		"both":                          {annotations(standard + "," + own), "", false},
		"of the node":                   {"", `"egressRate":"1M"`, false},
		"below the most":                {annotations(standard), `"maxRate":"1G"`, true},
		"held to the most":              {annotations(standard), `"maxRate":"1M"`, false},
		"podweir's own, left to others": {annotations(own), `"shaper":"calico"`, false},
	} {
		got, err := netconf.Parse(netconf.Add, input(tc.runtime, tc.keys))
		if err != nil || got.Shaping.Egress == nil || got.Shaping.Egress.Standard != tc.want {
			t.Errorf("%s: %+v, %v, want Standard = %v", name, got.Shaping.Egress, err, tc.want)
		}
	}
}
