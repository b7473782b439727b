// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
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

// TestSummary: both campaigns are in it, a miss is marked, and beside
// podweir's numbers stand the reference plugin's.
func TestSummary(t *testing.T) {
	table := Summary(results(), costs(1))
	for _, want := range []string{
		"worst second on the wire | tcp-1 **1.0105 of the cap**; mixed **1.0150 of the cap** | not measured | tcp-1 1.5010 of the cap; mixed 1.0150 of the cap | promise 2's formula: 1.01 of the cap from 10M up | **missed** by 2 of 2",
		"use of the cap by one TCP flow | **0.9600** | not measured | 1.0000 of the cap | at least 0.97 | **missed**",
		"segments retransmitted after 3 s | 40 in 10 s, 1.000 % | not measured | 34 | at most 10 in 10 s more than the tuned plugin, or 0.5 % | ok",
		"kept connection beside bulk, p99 | 1.500 ms (bystander 1.00) | 20.00 ms | not measured | at most 2 × the bystander's + 0.1 ms | ok",
		"the same, relative to the shipped plugin | **0.0750 of 20.0 ms** | - | - | at most 0.05 | **missed**",
		"ADD, median | strict-clsact 9.00 ms; strict-tcx-podside, 2 TCX links 41.00 ms | not measured",
		"kernel memory per pod, both directions | strict 79.0 KiB; strict-ifb 143.0 KiB |",
		"processor time per Gbit of pods without a limit, relative to a node without podweir | not measured | not measured | not measured | at most 1.01",
	} {
		what, _, _ := strings.Cut(want, " | ")
		if got := rowOf(t, &table, what); !strings.HasPrefix(got, want) {
			t.Errorf("row = %q, want %q", got, want)
		}
	}
}

// TestSummaryOfManyIsARange names what missed.
func TestSummaryOfManyIsARange(t *testing.T) {
	r := &record.Results{}
	for i, used := range []float64{0.98, 0.99, 1, 0.5, 0.975} {
		w := sweep
		w.Name = fmt.Sprintf("tcp-%d-egress", i%2)
		s := sample(ours, w, 0, map[string]float64{"egress_used_share": used, "carried_bits_per_second": 1e12})
		s.Cell.Rate = uint64(i+1) * 1_000_000
		r.Samples = append(r.Samples, s)
	}
	table := Summary(r)
	want := "use of the cap by one TCP flow (5: tcp-0, tcp-1, 1M to 5M) | 0.5000 to 1.0000; tcp-1, 4M **0.5000** | not measured | not measured | at least 0.97 | **missed** by 1 of 5"
	if got := rowOf(t, &table, useKind.Name); got != want {
		t.Errorf("row = %q, want %q", got, want)
	}
}

// TestSummaryHasWhatIsOfNoKind: a bar that is added is told.
func TestSummaryHasWhatIsOfNoKind(t *testing.T) {
	table := Summary()
	if len(table.Rows) != len(Kinds()) {
		t.Errorf("%d rows of nothing, want one for each of %d kinds", len(table.Rows), len(Kinds()))
	}
	b := &barred{}
	var bars []judged
	for i, n := range []int{2, 30, 1, 5, 4, 3} {
		w := sweep
		w.Name = fmt.Sprintf("load-%d", i)
		name := "something"
		if i == 5 {
			name = "another thing"
		}
		b.add(n < 5, &spec.Cell{Workload: w}, name, fmt.Sprintf("x %d of it", n), fmt.Sprintf("at most %d", 4-i/4))
		bars = append(bars, judged{Bar: b.bars[i]})
	}
	table = sumUp(bars)
	for what, want := range map[string]string{
		"something":     "something (5: load-0, load-1, load-2, load-3, load-4) | x 1 of it to x 30 of it; load-1 **x 30 of it**; load-3 **x 5 of it** | - | - | at most 4 … at most 3 | **missed** by 2 of 5",
		"another thing": "another thing | x 3 of it | - | - | at most 3 | ok",
	} {
		if got := rowOf(t, &table, what); got != want {
			t.Errorf("row = %q, want %q", got, want)
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
