// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"strings"
	"testing"
)

// rowOf finds the row of a summary that begins so.
func rowOf(t *testing.T, table *Table, what string) string {
	t.Helper()
	for _, row := range table.Rows {
		if strings.HasPrefix(row[0], what) {
			if len(row) != len(table.Header) {
				t.Errorf("%d cells under %d heads: %q", len(row), len(table.Header), row)
			}
			return strings.Join(row, " | ")
		}
	}
	t.Fatalf("the summary has no row %q: %q", what, table.Rows)
	return ""
}

// TestQuantityHasNoExponent: nobody reads 1.51e+03 ns.
func TestQuantityHasNoExponent(t *testing.T) {
	for metric, want := range map[string]map[float64]string{
		"alone_light_sender_cost_ns": {1511.4: "1511 ns", 55.24: "55.2 ns"},
		"kept_p99_ms":                {1234.5: "1234.50 ms"},
		"machine_cores_per_gbit":     {0.10382: "0.104 cores per Gbit/s"},
	} {
		for v, text := range want {
			if got := Quantity(metric, v); got != text {
				t.Errorf("%s of %v = %q, want %q", metric, v, got, text)
			}
		}
	}
}

// TestNotDecided: an interval that has room on either side of the target is no
// pass.
func TestNotDecided(t *testing.T) {
	pass, miss, open := judged{Bar: Bar{Pass: true}}, judged{}, judged{Bar: Bar{Pass: true, Undecided: true}}
	for want, bars := range map[string][]judged{
		"ok":                    {pass, pass},
		"not decided":           {open, open},
		"not decided in 1 of 2": {pass, open},
		"**missed** by 1 of 3":  {pass, open, miss},
	} {
		if got := verdict(bars); got != want {
			t.Errorf("verdict = %q, want %q", got, want)
		}
	}
}
