// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package result

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.123: "0.12", 9.994: "9.99", 9.996: "10.0", 99.96: "100", 12.34: "12.3", 1234.5: "1234"} {
		if got := Digits(v); got != want {
			t.Errorf("Digits(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestCapName(t *testing.T) {
	for rate, want := range map[uint64]string{0: "no cap", 10e6: "10M", 2e9: "2G", 500e3: "500k"} {
		if got := CapName(rate); got != want {
			t.Errorf("CapName(%d) = %s, want %s", rate, got, want)
		}
	}
}

func TestImplausibleMemoryIsNotShownAsANumber(t *testing.T) {
	for name, tc := range map[string]struct {
		m    *Memory
		want string
	}{
		"no plugin":                         {nil, "-"},
		"measured":                          {&Memory{Total: 120, Memlock: 66}, "120"},
		"less than nothing":                 {&Memory{Total: -3}, "noise"},
		"less than what BPF alone accounts": {&Memory{Total: 40, Memlock: 66}, "noise"},
	} {
		if got := tc.m.Cell(); got != tc.want {
			t.Errorf("%s: memory cell = %s, want %s", name, got, tc.want)
		}
	}
}

func TestOfCap(t *testing.T) {
	r := &Row{CapBitRate: 10e6}
	if got, want := r.OfCap(10.04e6, 500e6), "1.004 / 50.0"; got != want {
		t.Errorf("OfCap = %s, want %s", got, want)
	}
	if got := (&Row{}).OfCap(1); got != "-" {
		t.Errorf("OfCap without a cap = %s, want -", got)
	}
}

// TestOneMachine: each thing that a row may have to say besides its numbers.
func TestOneMachine(t *testing.T) {
	r := &Report{
		Started: "2026-11-22T01:00:00Z", Congestion: "cubic", Machine: Machine{Kernel: "6.18", CPUs: 2, CPU: "Abacus", Git: "c0ffee0123", GitDirty: true},
		Load: Load{OpenLoopPerSecond: 100, KeptPerSecond: 200, ResponseBytes: 6000},
		Rows: []Row{
			{Case: "a", Title: "no plugin", Egress: Flow{ElephantBitRate: 25.4e9}},
			{
				Case: "b", Title: "bandwidth plugin", CapBitRate: 10e6, Memory: &Memory{Total: 58},
				Ingress: Flow{WireSpread: [3]float64{0, 0, 14e6}, WorstSecondFromStart: 1560e6},
				Open:    Latency{P99: 1735, Requests: 900, Errors: map[string]int{"timeout": 3, "reset": 1}}, BystanderOpen: Latency{P99: 2.08},
			},
			{Case: "c", Title: "podweir strict", CapBitRate: 10e6, Egress: Flow{WireSpread: [3]float64{0, 0, 10.07e6}, WorstSecondFromStart: 10.1e6}},
			{Case: "d", Title: "podweir elephants", CapBitRate: 10e6, Egress: Flow{WireSpread: [3]float64{0, 0, 20e6}}},
		},
	}
	var out strings.Builder
	r.OneMachine(&out, "d.json")
	for _, want := range []string{
		"[All numbers](d.json)", "2026-11-22, 2 x Abacus, Linux 6.18, podweir c0ffee0-dirty", "responses of 6 kB",
		"| no cap | no plugin | 25400 / 0.00 |", "| 1.400 (156 from the start) | 1735 (2.08), 4 of 900 without an answer |", "| 58 |",
		"| 1.007 |", "| by policy |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, out.String())
		}
	}
}

// TestChart: each shaper has a dot with its numbers in the panel of its cap, a copy is
// called one, and what nobody answered is a ring.
func TestChart(t *testing.T) {
	flow := func(worst float64) Flow { return Flow{WorstSecondFromStart: worst} }
	r := &Report{Started: "2026-11-24T00:00:00Z", Rows: []Row{
		{Title: "no plugin", Open: Latency{P99: 2, Requests: 9}},
		{Title: "bandwidth <plugin>", CapBitRate: 10e6, Open: Latency{P99: 3000, Requests: 9, Errors: map[string]int{"timeout": 9}}, Egress: flow(1e9)},
		{Case: "c", Title: "podweir strict", CapBitRate: 10e6, Open: Latency{P99: 20, Requests: 9}, Egress: flow(10e6)},
		{Case: "f", Title: "Cilium", IngressOnly: true, CapBitRate: 10e6, Open: Latency{P99: 1, Requests: 9}, Ingress: flow(47e6)},
		{Title: "not measured", CapBitRate: 10e6},
	}}
	var out strings.Builder
	must.OK(t, r.Chart(&out))
	for _, want := range []string{
		"limit 10 Mbit/s", ">bandwidth &lt;plugin&gt;: no answer, 100 ×<", `class="ring"`, ">a pod without a limit: 2.00 ms<",
		">copy of Cilium, ingress: 1.00 ms, 4.700 ×<", ">worst second ÷ limit<",
		// Of four decades from 1 ms on 670 pixels, 20 ms is at 1.301.
		`<circle class="dot ours" cx="287.9"`,
	} {
		if !strings.Contains(strings.ReplaceAll(out.String(), "vertical: ", ""), want) {
			t.Errorf("the chart lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "not measured") {
		t.Error("a row without a number has a dot")
	}
	if err := (&Report{}).Chart(&out); err == nil {
		t.Error("a chart of nothing was drawn")
	}
}
