// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestCaps(t *testing.T) {
	got, err := parseCaps("10M, 1G,500k,1500")
	must.OK(t, err)
	if diff := cmp.Diff([]uint64{10e6, 1e9, 500e3, 1500}, got); diff != "" {
		t.Errorf("parseCaps (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", "0M", "10X", "-1M", "10M,"} {
		if _, err := parseCaps(bad); err == nil {
			t.Errorf("parseCaps(%q) = nil error, want an error", bad)
		}
	}
}

func TestPick(t *testing.T) {
	got, err := pick(scenarios(), "d, b")
	must.OK(t, err)
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
