// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package wiremeter

import (
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
)

const ms = time.Millisecond

func TestWindows(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes  []uint64
		length time.Duration
		want   []uint64
	}{
		"every start has a window, ascending":  {[]uint64{1, 5, 2, 4}, 2 * ms, []uint64{6, 6, 7}},
		"window as long as the range":          {[]uint64{1, 5, 2}, 3 * ms, []uint64{8}},
		"range shorter than the window":        {[]uint64{1, 5}, 3 * ms, nil},
		"length is cut to whole milliseconds":  {[]uint64{1, 5}, ms + ms/2, []uint64{1, 5}},
		"window of no length":                  {[]uint64{1, 5}, 0, nil},
		"burst across the middle is one worst": {[]uint64{0, 9, 9, 0}, 2 * ms, []uint64{9, 9, 18}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Series{Bytes: tc.bytes}
			must.Match(t, "Windows()", tc.want, s.Windows(tc.length))
			var worst uint64
			if len(tc.want) > 0 {
				worst = tc.want[len(tc.want)-1]
			}
			must.Be(t, "Worst()", worst, s.Worst(tc.length))
		})
	}
}

func TestExcess(t *testing.T) {
	// 8 Mbit/s are 1000 bytes per millisecond.
	const rate = 8e6
	for name, tc := range map[string]struct {
		bytes []uint64
		want  float64
	}{
		"exactly the cap":                      {[]uint64{1000, 1000, 1000}, 0},
		"nothing":                              {nil, 0},
		"one burst":                            {[]uint64{0, 4000, 0}, 3000},
		"idle time earns no credit":            {[]uint64{0, 0, 0, 2000}, 1000},
		"two bursts with too short a pause":    {[]uint64{3000, 0, 3000}, 3000},
		"two bursts far apart are not one":     {[]uint64{3000, 0, 0, 0, 2500}, 2000},
		"a slow leak above the cap adds up":    {[]uint64{1100, 1100, 1100, 1100}, 400},
		"the worst may be before a long pause": {[]uint64{5000, 0, 0, 0, 0, 0, 2000}, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Series{Bytes: tc.bytes}
			must.Be(t, "Excess(8 Mbit/s)", tc.want, s.Excess(rate))
		})
	}
}
