// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/tools/perfrig/record"
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

// TestSummary has the range of all campaigns, and each cell that misses.
func TestSummary(t *testing.T) {
	table := Summary(results(), costs(1), fullNode(3.3))
	for _, want := range []string{
		"worst second on the wire | 2 | 1.0105 to 1.0150 of the cap; **1.0105 of the cap** of tcp-1/10M/podweir-strict; **1.0150 of the cap** of mixed/10M/podweir-strict | promise 2's formula: 1.01 of the cap from 10M up | **missed** by 2 of 2",
		"kept connection beside bulk, p99 | 1 | 1.500 ms | at most 2 × the bystander's + 0.1 ms | ok",
		"processor time per Gbit of a limited pod, relative to the tuned plugin |  | not measured | at most 1.5 out of 100M, 1.1 elsewhere | -",
		"packets to all pods in turns, relative to one pod | 2 | 1.00 to 3.30; **3.30** of pods-110/10M/podweir-strict | at most 3.2 | **missed** by 1 of 2",
	} {
		what, _, _ := strings.Cut(want, " | ")
		if got := rowOf(t, &table, what); got != want {
			t.Errorf("row = %q, want %q", got, want)
		}
	}
	// Every bar is of a kind, or the table would not have it.
	for _, r := range []*record.Results{results(), costs(1), fullNode(1)} {
		for _, b := range Bars(r) {
			if b.Kind == "" {
				t.Errorf("%s is of no kind", b.What)
			}
		}
	}
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
