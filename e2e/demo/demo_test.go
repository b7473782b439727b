// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCaps(t *testing.T) {
	got, err := parseCaps("10M, 1G,500k,1500")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{10e6, 1e9, 500e3, 1500}, got); diff != "" {
		t.Errorf("parseCaps (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "0M", "10X", "-1M", "10M,"} {
		if _, err := parseCaps(bad); err == nil {
			t.Errorf("parseCaps(%q) = nil error, want an error", bad)
		}
	}
	for rate, want := range map[uint64]string{0: "no cap", 10e6: "10M", 2e9: "2G", 500e3: "500k"} {
		if got := capName(rate); got != want {
			t.Errorf("capName(%d) = %s, want %s", rate, got, want)
		}
	}
}

func TestPick(t *testing.T) {
	got, err := pick(scenarios(), "d, b")
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]string, 0, len(got))
	for _, s := range got {
		keys = append(keys, s.key)
	}
	if !slices.Equal(keys, []string{"b", "d"}) {
		t.Errorf("pick = %v, want b and d in the order of the table", keys)
	}
	if _, err := pick(scenarios(), "a,q"); err == nil || !strings.Contains(err.Error(), `"q"`) {
		t.Errorf("pick of an unknown case = %v, want an error that names it", err)
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.123: "0.12", 9.994: "9.99", 12.34: "12.3", 1234.5: "1234"} {
		if got := digits(v); got != want {
			t.Errorf("digits(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestColumnsLineUp(t *testing.T) {
	d := &demo{report: &report{Rows: []row{
		{Case: "a", Title: "no plugin"},
		{Case: "b", Title: "bandwidth plugin", CapBitRate: 10e6, Memory: &memory{Total: 51.4}},
		{Case: "c", Title: "podweir strict", CapBitRate: 10e6, Open: latency{Errors: map[string]int{"timeout": 2}, Requests: 9}},
	}}}
	var out strings.Builder
	d.out = &out
	d.table()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	got := lines[len(lines)-1]
	if want := "(c) at 10M, light flows: 2 of 9 without a response: timeout"; strings.TrimSpace(got) != want {
		t.Errorf("last line = %q, want %q", got, want)
	}
	// The rightmost column is aligned to the right: its cells end together.
	var ends []int
	for _, line := range lines[2:6] {
		ends = append(ends, len([]rune(line)))
	}
	if slices.Min(ends) != slices.Max(ends) {
		t.Errorf("lines end at %v, want one place:\n%s", ends, out.String())
	}
	if !strings.Contains(lines[4], "51") {
		t.Errorf("row %q does not show the memory of 51.4 KiB", lines[4])
	}
}

func TestImplausibleMemoryIsNotShownAsANumber(t *testing.T) {
	for name, tc := range map[string]struct {
		m    *memory
		want string
	}{
		"no plugin":                         {nil, "-"},
		"measured":                          {&memory{Total: 120, Memlock: 66}, "120"},
		"less than nothing":                 {&memory{Total: -3}, "noise"},
		"less than what BPF alone accounts": {&memory{Total: 40, Memlock: 66}, "noise"},
	} {
		cells := (&row{Memory: tc.m}).cells("")
		if got := cells[len(cells)-1]; got != tc.want {
			t.Errorf("%s: memory cell = %s, want %s", name, got, tc.want)
		}
	}
}

func TestOfCap(t *testing.T) {
	r := &row{CapBitRate: 10e6}
	if got, want := r.ofCap(10.04e6, 500e6), "1.004 / 50.0"; got != want {
		t.Errorf("ofCap = %s, want %s", got, want)
	}
	if got := (&row{}).ofCap(1); got != "-" {
		t.Errorf("ofCap without a cap = %s, want -", got)
	}
}
