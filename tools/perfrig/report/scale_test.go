// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// TestBarOfCollisions: a victim that is taken for heavy is a miss, but not where
// the attacker was given the key.
func TestBarOfCollisions(t *testing.T) {
	attack := func(variant string) spec.Workload {
		return spec.Workload{Name: "attack-" + variant + "-ingress", Kind: spec.Attack, Variant: variant, Direction: "ingress"}
	}
	heavy := func(share float64) map[string]float64 { return map[string]float64{"victim_heavy_share": share} }
	r := &record.Results{Samples: []record.Sample{
		sample(ours, attack("collide"), 0, heavy(0.02)), sample(lightly, attack("collide"), 0, heavy(0.009)),
		sample(ours, attack("collide-known"), 0, heavy(1)), sample(ours, attack("ports"), 0, heavy(1)),
		sample(better, attack("collide"), 0, nil),
	}}
	want := map[string]string{
		"attack-collide-ingress/10M/podweir-strict: kept connection taken for heavy":    "MISS",
		"attack-collide-ingress/10M/podweir-elephants: kept connection taken for heavy": "ok",
	}
	if diff := cmp.Diff(want, words(Bars(r))); diff != "" {
		t.Errorf("Bars (-want +got):\n%s", diff)
	}
}
