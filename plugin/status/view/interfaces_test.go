// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// A pod with several interfaces has a limit on each, and the table says so in its column.
func TestLimitsOfSeveralInterfaces(t *testing.T) {
	for want, rates := range map[string][]units.BitRate{
		"-": nil, "10 Mbit/s": {10e6}, "2 × 10 Mbit/s": {10e6, 10e6}, "2 × 9.87M": {9.87e6, 9.87e6}, "10M, 20M": {10e6, 20e6}, "2 × 10M, 1G": {10e6, 1e9, 10e6},
	} {
		p := view.Pod{Pod: "ns/web", State: view.Limited}
		for i, rate := range rates {
			p.Limits = append(p.Limits, view.Limit{Interface: []string{"eth0", "net1", "net2"}[i], Limit: limitOf(terms.Egress, rate)})
		}
		if got := p.Limit(terms.Egress); got != want {
			t.Errorf("Limit of %v = %q, want %q", rates, got, want)
		}
		if table := view.Table([]view.Pod{p}); !strings.Contains(table, want) {
			t.Errorf("the table has no %q:\n%s", want, table)
		}
	}
}
