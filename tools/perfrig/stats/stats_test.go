// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package stats

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podweir/podweir/plugin/testutil/must"
)

var near = cmpopts.EquateApprox(0, 0.001)

// The intervals are those of tables: t(4; 97.5 %) is 2.776, t(1) 12.706.
func TestSummarise(t *testing.T) {
	nan := math.NaN()
	for name, tc := range map[string]struct {
		samples []float64
		want    Summary
	}{
		"five": {[]float64{3, 1, 2, 5, 4}, Summary{
			N: 5, Mean: 3, Min: 1, Max: 5, Median: 3, Stddev: math.Sqrt(2.5),
			ConfidenceLow: 1.0371, ConfidenceHigh: 4.9629,
		}},
		"two": {[]float64{1, 2}, Summary{
			N: 2, Mean: 1.5, Min: 1, Max: 2, Median: 1.5, Stddev: math.Sqrt(0.5),
			ConfidenceLow: -4.8531, ConfidenceHigh: 7.8531,
		}},
		"one has no spread": {[]float64{7}, Summary{
			N: 1, Mean: 7, Min: 7, Max: 7, Median: 7, Stddev: nan, ConfidenceLow: nan, ConfidenceHigh: nan,
		}},
		"none": {nil, Summary{
			Mean: nan, Min: nan, Max: nan, Median: nan, Stddev: nan, ConfidenceLow: nan, ConfidenceHigh: nan,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			must.Match(t, "Summarise()", tc.want, Summarise(tc.samples), near, cmpopts.EquateNaNs())
		})
	}
}

func TestDifferent(t *testing.T) {
	quiet, doubled := []float64{1, 1.01, 0.99}, []float64{2, 2.02, 1.98}
	noisy := []float64{0.5, 1, 4}
	for name, tc := range map[string]struct {
		before, after []float64
		ratio         float64
		low, high     float64 // what the bounds must lie beyond or within
		isOne         bool    // 1 is within the bounds
	}{
		"twice, little noise":    {before: quiet, after: doubled, ratio: 2, low: 1.9, high: 2.1},
		"the same":               {before: quiet, after: quiet, ratio: 1, low: 0.9, high: 1.1, isOne: true},
		"noise on one side":      {before: noisy, after: doubled, ratio: 2 / math.Cbrt(2), high: 1000, isOne: true},
		"noise on the other":     {before: doubled, after: noisy, ratio: math.Cbrt(2) / 2, high: 1000, isOne: true},
		"no spread on any side":  {before: []float64{1, 1}, after: []float64{3, 3}, ratio: 3, low: 2.999, high: 3.001},
		"half, on the down side": {before: doubled, after: quiet, ratio: 0.5, low: 0.45, high: 0.55},
	} {
		t.Run(name, func(t *testing.T) {
			d, ok := Different(tc.before, tc.after)
			if !ok || math.Abs(d.Ratio-tc.ratio) > 0.01 {
				t.Fatalf("ratio = %v (%v), want %v", d.Ratio, ok, tc.ratio)
			}
			if d.Low < tc.low || d.High > tc.high {
				t.Errorf("bounds = %v to %v, want within %v to %v", d.Low, d.High, tc.low, tc.high)
			}
			must.Be(t, fmt.Sprintf("bounds %v to %v hold 1", d.Low, d.High), tc.isOne, d.Low <= 1 && 1 <= d.High)
		})
	}
	for _, bad := range [][]float64{nil, {1}, {0, 1}, {math.NaN(), 1}, {math.Inf(1), 1}} {
		if _, ok := Different(quiet, bad); ok {
			t.Errorf("Different(_, %v) has an answer", bad)
		}
	}
}
