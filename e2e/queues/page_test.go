// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The committed pages are those of the committed numbers.
func TestPagesAreOfTheirJSON(t *testing.T) {
	files, err := filepath.Glob("../../docs/results/*-queues.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("results: %v, %v, want at least one file", files, err)
	}
	for _, file := range files {
		r, err := readResults(file)
		if err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(r.page()), string(page)); diff != "" {
			t.Errorf("%s has another page (-want +got):\n%s", file, diff)
		}
	}
}

func TestMergeReplacesWhatWasMeasuredAgain(t *testing.T) {
	one := row{Kernel: "6.1", Group: "caps10", Way: "tbf", Place: "ifb", Direction: "ingress", Cap: 10 * mbit, Load: "UDP 2x"}
	other := one
	other.Kernel = "6.12"
	r := &results{}
	r.merge([]row{one, other})
	again := one
	again.Caps = &capNumbers{Worst: 1}
	r.merge([]row{again})
	if diff := cmp.Diff([]row{again, other}, r.Rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// A row is judged by what is allowed, but only if enough was offered.
func TestVerdictOfARow(t *testing.T) {
	for name, tc := range map[string]struct {
		n    capNumbers
		want string
	}{
		"within":      {capNumbers{Worst: 1.01, Limit: 1.01, Carried: 12 * mbit}, "| ok |"},
		"above":       {capNumbers{Worst: 1.0101, Limit: 1.01, Carried: 12 * mbit}, "| above |"},
		"not offered": {capNumbers{Worst: 1.0101, Limit: 1.01, Carried: 11.9 * mbit}, "| not offered |"},
	} {
		if got := tc.n.cells(10 * mbit); !strings.Contains(got, tc.want) {
			t.Errorf("%s: cells %q, want %q in them", name, got, tc.want)
		}
	}
}

// A group that was measured again as a whole, at another cap, leaves no row of
// then behind.
func TestDropForgetsAGroupOfAKernel(t *testing.T) {
	then := row{Kernel: "6.12", Group: "capsTop", Way: "tbf", Cap: 300 * mbit}
	other := row{Kernel: "6.1", Group: "capsTop", Way: "tbf", Cap: 200 * mbit}
	r := &results{Rows: []row{then, other}}
	r.drop("6.12", "capsTop")
	if diff := cmp.Diff([]row{other}, r.Rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
