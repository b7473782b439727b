// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"testing"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestPerSecondOf(t *testing.T) {
	var intervals []lab.BulkInterval
	for i := range 7 {
		intervals = append(intervals, lab.BulkInterval{Start: float64(i) / 2, Flows: []float64{float64(i), 10}})
	}
	// The half second from 0.5 is the first that lies behind 0.4, the last is half
	// of a second.
	want := [][]float64{{1 + 2, 3 + 4, 5 + 6}, {20, 20, 20}}
	must.Match(t, "perSecondOf()", want, perSecondOf(intervals, 0.4))
	must.Len(t, "perSecondOf() behind the end", 0, perSecondOf(intervals, 9))
}

func TestMedianFairness(t *testing.T) {
	for name, tc := range map[string]struct {
		flows [][]float64
		want  float64
	}{
		"all alike":                 {[][]float64{{3, 3}, {3, 3}}, 1},
		"one has all":               {[][]float64{{8, 8}, {0, 0}, {0, 0}, {0, 0}}, 0.25},
		"the median of the seconds": {[][]float64{{1, 1, 9}, {1, 1, 0}}, 1},
	} {
		must.Within(t, name, tc.want-1e-9, tc.want+1e-9, medianFairness(tc.flows))
	}
}
