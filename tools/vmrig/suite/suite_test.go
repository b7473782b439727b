// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package suite

import (
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Packages that run side by side are told apart, what a mark left out is missing, and of a
// log that is cut off what is before is read.
func TestParse(t *testing.T) {
	const log = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"q","Test":"TestA","Output":"    a_test.go:3: SKIP-FEATURE: fq\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: SKIP-MARK: nightly: long\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"q","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":42}
{"Action":"fail","Pack`
	want := map[TestID]Test{{"p", "TestA"}: {Outcome: Pass}, {"q", "TestA"}: {Skip, "fq"}}
	all, err := Parse(strings.NewReader(log))
	got := map[TestID]Test{}
	for _, p := range all {
		maps.Copy(got, p.Tests)
	}
	if diff := cmp.Diff(want, got); !errors.Is(err, io.ErrUnexpectedEOF) || diff != "" {
		t.Errorf("Parse(): %v (-want +got):\n%s", err, diff)
	}
	if p, q := all["p"], all["q"]; p.Outcome != Pass || p.Seconds != 42 || q.Outcome != "" || q.Output.String() != "    a_test.go:3: SKIP-FEATURE: fq\n" {
		t.Errorf("packages %+v, %+v", p, q)
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
		tests map[TestID]Test
		ended Outcome
		err   error
		want  []string
	}{
		"all is well":            {passed, Pass, nil, nil},
		"a test failed":          {failed, Fail, nil, nil},
		"it hung":                {passed, "", errors.New("killed"), []string{"p: killed"}},
		"a later one hung":       {passed, Pass, errors.New("killed"), nil},
		"the script ended early": {passed, "", nil, []string{"p did not end: see log"}},
		"it panicked":            {passed, Fail, nil, []string{"p failed without a failed test: see log"}},
		"it ran nothing":         {nil, Pass, nil, []string{"p ran no test: see log"}},
	} {
		must.Match(t, name, tt.want, troubles(&b, "log", &Package{Tests: tt.tests, Outcome: tt.ended}, tt.err))
	}
}

// A shell runs the script, and what it writes is taken apart again.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, step.Run(func() { goTool(t.Context(), "build", "-o", filepath.Join(dir, converter), "cmd/test2json") }))
	binary := func(pkg, name, text string) Binary {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
		return Binary{Package: pkg, Dir: dir, Path: path}
	}
	r := Runner{Run: "^TestPrivileged", Timeout: 10 * time.Minute}
	binaries := []Binary{
		binary("p", "a'b", `echo "in $PWD, $*"; echo '--- PASS: TestPrivilegedA (0.10s)'; echo PASS`),
		binary("q", "c", "echo without an end >&2; printf line; exit 7"), binary("r", "d", `echo "$2"`),
	}
	binaries[2].Run = `^TestA$/^it's$`
	out := must.Get(exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(r.script(binaries), "/dev/kmsg", "/dev/null")).Output())(t)
	all := must.Get(Parse(strings.NewReader(string(out))))(t)
	for pkg, want := range map[string]struct {
		ended  Outcome
		output string
	}{
		"p": {Pass, "in " + dir + ", -test.v=test2json -test.run=^TestPrivileged -test.timeout=9m0s\n--- PASS: TestPrivilegedA (0.10s)\nPASS\n"},
		"q": {Fail, "without an end\nline"},
		"r": {Pass, "-test.run=^TestA$/^it's$\n"},
	} {
		if p := all[pkg]; p == nil || p.Outcome != want.ended || !strings.HasPrefix(p.Output.String(), want.output) {
			t.Errorf("%s: %+v, want %+v", pkg, p, want)
		}
	}
	must.Be(t, "the test of p", Pass, all["p"].Tests[TestID{"p", "TestPrivilegedA"}].Outcome)
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
	out := must.Get(awk.Output())(t)
	want := []string{
		"example.org/loud: [    8.573211] refcount_t: underflow; use-after-free, says a test",
		"example.org/loud: [    8.577934] Kernel panic - not syncing: sysrq triggered crash",
	}
	must.Match(t, "complaints", want, complaintsOf(string(out)))
}
