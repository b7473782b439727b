// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import (
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestShareOfACall: who is active counts, a tunnel as one, and a flood of new flows
// leaves no share to speak of.
func TestShareOfACall(t *testing.T) {
	bulk := func(n int) []Bulk { return []Bulk{{Congestion: "cubic", Flows: n}} }
	for name, tc := range map[string]struct {
		mix   Mix
		below bool
		turn  float64 // ms at 10M
	}{
		"a tenth beside 8":        {Mix{CallShare: 0.1, Bulk: bulk(8)}, true, (8*1514 + 625) * 8 / 1e4},
		"a fifth beside 8":        {Mix{CallShare: 0.2, Bulk: bulk(8)}, false, (8*1514 + 1250) * 8 / 1e4},
		"200 that fill the cap":   {Mix{CallShare: 0.005, Calls: 200}, true, 200 * 114 * 8 / 1e4},
		"201 of that":             {Mix{CallShare: 0.005, Calls: 201}, false, 201 * 114 * 8 / 1e4},
		"pages":                   {Mix{CallShare: 0.015, Fetch: true}, true, (16*1514 + 114) * 8 / 1e4},
		"a tunnel of 8":           {Mix{CallShare: 0.3, Tunnel: true, Bulk: bulk(8)}, true, (1514 + 1414) * 8 / 1e4},
		"stream, video and flood": {Mix{CallShare: 0.25, Stream: true, VideoShare: 0.1, Flood: "udp"}, true, (3*1514 + 1414) * 8 / 1e4},
		"a flood of new flows":    {Mix{CallShare: 0.03, Flood: "ports"}, false, 187 * 8 / 1e4},
	} {
		must.Be(t, name+": below its share", tc.below, tc.mix.BelowShare())
		must.Within(t, name+": ms of a turn", tc.turn-0.01, tc.turn+0.01, 1000*tc.mix.TurnSeconds(10*mbit))
	}
}
