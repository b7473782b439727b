// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const log = `=== RUN   TestPrivilegedA
--- PASS: TestPrivilegedA (0.10s)
=== RUN   TestPrivilegedB
    b_test.go:3: SKIP-FEATURE: fq
--- SKIP: TestPrivilegedB (0.00s)
=== RUN   TestPrivilegedC
=== RUN   TestPrivilegedC/one
    c_test.go:3: SKIP-FEATURE: netkit
=== RUN   TestPrivilegedC/two
    c_test.go:9: got 1, want 2
=== NAME  TestPrivilegedC
    c_test.go:12: after all
--- FAIL: TestPrivilegedC (0.00s)
    --- SKIP: TestPrivilegedC/one (0.00s)
    --- FAIL: TestPrivilegedC/two (0.00s)
FAIL
`

func TestParse(t *testing.T) {
	want := map[string]Test{
		"TestPrivilegedA":     {Outcome: Pass},
		"TestPrivilegedB":     {Outcome: Skip, Feature: "fq"},
		"TestPrivilegedC":     {Outcome: Fail},
		"TestPrivilegedC/one": {Outcome: Skip, Feature: "netkit"},
		"TestPrivilegedC/two": {Outcome: Fail},
	}
	for name, tt := range map[string]struct{ log, pkg string }{
		"one binary":       {log, "example.org/p"},
		"of many packages": {log + "FAIL\texample.org/p\t1.5s\n?   \texample.org/q\t[no test files]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tests, err := Parse(strings.NewReader(tt.log), tt.pkg)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]Test{}
			for id, test := range tests {
				if id.Package != "example.org/p" {
					t.Errorf("Parse() has a test of package %q", id.Package)
				}
				got[id.Name] = test
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Parse() mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReport(t *testing.T) {
	a, b, c := TestID{"p", "TestA"}, TestID{"p", "TestB"}, TestID{"p", "TestC"}
	tests := map[string]struct {
		all  []Results
		want []string
	}{
		"what one kernel lacks another has": {
			all: []Results{
				{Kernel: "host", Tests: map[TestID]Test{a: {Outcome: Pass}, b: {Skip, "fq"}}},
				{Kernel: "6.1", Tests: map[TestID]Test{a: {Skip, "tcx"}, b: {Outcome: Pass}}},
			},
		},
		"no kernel has it": {
			all: []Results{
				{Kernel: "host", Tests: map[TestID]Test{a: {Outcome: Pass}, b: {Skip, "fq"}}},
				{Kernel: "6.1", Tests: map[TestID]Test{a: {Outcome: Pass}, b: {Skip, "fq"}}},
			},
			want: []string{"p TestB is run by no kernel"},
		},
		"a failure, a bare skip and a crash": {
			all: []Results{
				{Kernel: "host", Tests: map[TestID]Test{a: {Outcome: Pass}, b: {Outcome: Pass}, c: {Outcome: Pass}}},
				{Kernel: "6.1", Tests: map[TestID]Test{a: {Outcome: Fail}, b: {Outcome: Skip}}, Troubles: []string{"p: it hung"}},
			},
			want: []string{"6.1: p TestA failed", "6.1: p TestB was skipped without naming a feature", "6.1: p: it hung"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if diff := cmp.Diff(tt.want, Report(&out, tt.all)); diff != "" {
				t.Errorf("Report() mismatch (-want +got):\n%s", diff)
			}
		})
	}
	var out strings.Builder
	Report(&out, tests["what one kernel lacks another has"].all)
	for _, want := range []string{"host has no fq, so it skipped TestB\n", "6.1 has no tcx, so it skipped TestA\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("Report() wrote\n%s\nwithout %q", out.String(), want)
		}
	}
}
