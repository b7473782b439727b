// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"testing"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// TestPathThatWasNotTakenIsNotTold: a light packet among heavy ones is one of the
// time before the flow was known; many are another measurement.
func TestPathThatWasNotTakenIsNotTold(t *testing.T) {
	for _, tc := range []struct {
		path       string
		all, light uint64
		ok         bool
	}{
		{"light", 100, 100, true},
		{"light", 100, 50, false},
		{"heavy", 100, 5, true},
		{"heavy", 100, 50, false},
		{"heavy", 0, 0, false},
	} {
		a := &among{run: &run{
			cell: &spec.Cell{Phase: spec.Phase{Kind: spec.Podweir}}, into: &record.Sample{Metrics: map[string]float64{}},
		}}
		if err := step.Run(func() { a.took(tc.path, tc.all, tc.light) }); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
