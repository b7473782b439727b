// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
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
=== RUN   TestPrivilegedC/three
    c_test.go:9: SKIP-MARK: nightly: it takes a minute
=== NAME  TestPrivilegedC
    c_test.go:12: after all
--- FAIL: TestPrivilegedC (0.00s)
    --- SKIP: TestPrivilegedC/one (0.00s)
    --- FAIL: TestPrivilegedC/two (0.00s)
    --- SKIP: TestPrivilegedC/three (0.00s)
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
	tests, err := Parse(t.Context(), log, "example.org/p")
	must.OK(t, err)
	got := map[string]Test{}
	for id, test := range tests {
		if id.Package != "example.org/p" {
			t.Errorf("Parse() has a test of package %q", id.Package)
		}
		got[id.Name] = test
	}
	must.Match(t, "Parse() mismatch", want, got)
}

// Packages that run side by side are told apart, and what a mark left out is missing.
func TestParseJSON(t *testing.T) {
	const log = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"q","Test":"TestA","Output":"    a_test.go:3: SKIP-FEATURE: fq\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: SKIP-MARK: nightly: long\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"q","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}
`
	want := map[TestID]Test{{"p", "TestA"}: {Outcome: Pass}, {"q", "TestA"}: {Skip, "fq"}}
	got, err := ParseJSON(strings.NewReader(log))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ParseJSON(): %v (-want +got):\n%s", err, diff)
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
				{Kernel: "host", Lacks: []string{"fq"}, Tests: map[TestID]Test{a: {Outcome: Pass}, b: {Skip, "fq"}}},
				{Kernel: "6.1", Lacks: []string{"tcx"}, Tests: map[TestID]Test{a: {Skip, "tcx"}, b: {Outcome: Pass}}},
			},
		},
		"a feature that the kernel has": {
			all: []Results{
				{Kernel: "host", Lacks: []string{"fq"}, Tests: map[TestID]Test{a: {Outcome: Pass}, b: {Skip, "fq"}}},
				{Kernel: "6.12", Tests: map[TestID]Test{a: {Skip, "tcx"}, b: {Outcome: Pass}}},
			},
			want: []string{"6.12: p TestA was skipped for the lack of tcx, which the kernel has"},
		},
		"no kernel has it": {
			all: []Results{
				{Kernel: "host", Lacks: []string{"fq"}, Tests: map[TestID]Test{a: {Outcome: Pass}, b: {Skip, "fq"}}},
				{Kernel: "6.1", Lacks: []string{"fq"}, Tests: map[TestID]Test{a: {Outcome: Pass}, b: {Skip, "fq"}}},
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
			must.Match(t, "Report() mismatch", tt.want, append(Report(&out, tt.all), RunByNone(tt.all)...))
		})
	}
	var out strings.Builder
	all := tests["what one kernel lacks another has"].all
	Report(&out, all)
	must.Have(t, "what Report() wrote", out.String(), "host has no fq, so it skipped TestB\n", "6.1 has no tcx, so it skipped TestA\n")
}

func TestTroubles(t *testing.T) {
	b := Binary{Package: "p"}
	passed := map[TestID]Test{{"p", "TestA"}: {Outcome: Pass}}
	failed := map[TestID]Test{{"p", "TestA"}: {Outcome: Fail}}
	for name, tt := range map[string]struct {
		tests  map[TestID]Test
		status int
		err    error
		want   []string
	}{
		"all is well":            {tests: passed},
		"a test failed":          {tests: failed, status: 1},
		"it hung":                {tests: passed, status: -1, err: errors.New("killed"), want: []string{"p: killed"}},
		"a later one hung":       {tests: passed, err: errors.New("killed")},
		"the script ended early": {tests: passed, status: -1, want: []string{"p did not end: see log"}},
		"it panicked":            {tests: passed, status: 2, want: []string{"p ended with status 2 and no failed test: see log"}},
		"it ran nothing":         {want: []string{"p ran no test: see log"}},
	} {
		t.Run(name, func(t *testing.T) {
			must.Match(t, "troubles() mismatch", tt.want, troubles(&b, "log", tt.tests, &section{status: tt.status}, tt.err))
		})
	}
}

// A shell runs the script, and what it writes is taken apart again.
func TestSections(t *testing.T) {
	dir := t.TempDir()
	binary := func(name, text string) Binary {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
		return Binary{Package: "example.org/p", Dir: dir, Path: path}
	}
	r := Runner{Run: "^TestPrivileged", Timeout: 10 * time.Minute}
	binaries := []Binary{
		binary("a'b", `echo "in $PWD, $*"`), binary("c", "echo without an end >&2; printf line; exit 7"), binary("d", "echo d"),
	}
	binaries[2].Run = `^TestA$/^it's$`
	began := time.Now()
	out, err := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(r.script(binaries), "/dev/kmsg", "/dev/null")).Output()
	must.OK(t, err)
	got := sections(string(out), len(binaries))
	// The shell counts the seconds that begin: a moment may have one.
	for i := range got {
		if most := 1 + int(time.Since(began).Seconds()); got[i].seconds < 0 || got[i].seconds > most {
			t.Errorf("%d seconds of section %d, want 0 to %d", got[i].seconds, i, most)
		}
	}
	anySeconds := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".seconds" }, cmp.Ignore())
	want := []section{
		{text: "\nin " + dir + ", -test.v -test.run=^TestPrivileged -test.timeout=9m0s\n\n\n"},
		{text: "without an end\nline\n\n", status: 7},
		{text: "d\n\n"},
	}
	must.Match(t, "sections", want, got, cmp.AllowUnexported(section{}), anySeconds)
	// The machine went down in the second.
	before, _, _ := strings.Cut(string(out), endLine+"7")
	want[1] = section{text: "without an end\nline\n", status: -1}
	must.Match(t, "sections of a machine that ended early", want[:2], sections(before, len(binaries)), cmp.AllowUnexported(section{}), anySeconds)
	if got := sections(beginLine+"0\na\n"+endLine+"3 42\n", 1); len(got) != 1 || got[0] != (section{text: "a\n", status: 3, seconds: 42}) {
		t.Errorf("sections of one that took 42 s = %+v", got)
	}
	// It did not come up.
	if got := sections("", len(binaries)); len(got) != 1 || got[0].status != -1 {
		t.Errorf("sections of nothing = %+v, want one that did not end", got)
	}
}

// What the kernel complains of on its console is told with the package that it ran.
func TestComplaints(t *testing.T) {
	const console = `Booting from ROM...
[    0.044000] tsc: Unable to calibrate against PIT
[    8.571195] ` + beginMark + `example.org/quiet
[    8.572495] ` + beginMark + `example.org/loud
[    8.573211] refcount_t: underflow; use-after-free, says a test
[    8.577699] sysrq: Trigger a crash
[    8.577934] Kernel panic - not syncing: sysrq triggered crash
[    8.578156] CPU: 0 PID: 119 Comm: sh Not tainted 6.1.0-50-cloud-amd64 #1  Debian 6.1.176-1
`
	awk := exec.CommandContext(t.Context(), "awk", "-v", "kernel=6.1", "-f", "../complaints.awk")
	awk.Stdin = strings.NewReader(console)
	out, err := awk.Output()
	must.OK(t, err)
	want := []string{
		"example.org/loud: [    8.573211] refcount_t: underflow; use-after-free, says a test",
		"example.org/loud: [    8.577934] Kernel panic - not syncing: sysrq triggered crash",
	}
	must.Match(t, "complaints", want, complaintsOf(string(out)))
}
