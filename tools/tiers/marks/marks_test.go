// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package marks_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/tiers/marks"
)

// write makes a tree of files and returns its root.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	return must.Files(t, t.TempDir(), files)
}

func TestSelection(t *testing.T) {
	marked := must.Get(os.ReadFile("testdata/marked.txt"))(t)
	root := write(t, map[string]string{
		"go.mod": "", "a/a_test.go": string(marked),
		"b/b_test.go":      "package b\n\nfunc TestPrivilegedB(t *testing.T) {}\n",
		"n/go.mod":         "",
		"n/x/x_test.go":    "package x\n\nfunc TestPrivilegedX(t *testing.T) {}\n",
		"a/testdata/q.txt": "", "bin/c/c_test.go": "no Go",
	})
	tests, faults, err := marks.Read(root)
	if err != nil || len(faults) > 0 {
		t.Fatalf("Read() = %v, %v", faults, err)
	}
	got := map[string][]string{}
	for _, tier := range marks.Tiers() {
		for _, at := range marks.Places() {
			for dir, names := range marks.Select(tests, tier, at) {
				for _, name := range names {
					key := tier + " " + string(at)
					got[key] = append(got[key], dir+" "+strings.TrimPrefix(name, "TestPrivileged"))
				}
			}
		}
	}
	here, alone, b := []string{"a Core", "a Plain", "a Some"}, []string{"a Clock", "a Timed"}, "b B"
	want := map[string][]string{
		"test shared": append(here, b), "test alone": alone, "test kernels": {"a Core"},
		"gate shared": append(here, b), "gate alone": alone, "gate kernels": {"a Core", "a Some", b}, "gate kernels-alone": {"a Clock"},
		"all shared": {"a Core", "a Night", "a Plain", "a Some", b}, "all alone": alone,
		"all kernels": {"a Core", "a Night", "a Plain", "a Some", b}, "all kernels-alone": {"a Clock"},
	}
	sorted := cmp.Transformer("sorted", func(s []string) map[string]bool {
		m := map[string]bool{}
		for _, x := range s {
			m[x] = true
		}
		return m
	})
	must.Match(t, "selected tests", want, got, sorted)
	if got, want := marks.Pattern([]string{"TestPrivilegedA", "TestPrivilegedB"}), "^TestPrivileged(A|B)$"; got != want {
		t.Errorf("Pattern() = %q, want %q", got, want)
	}
	table := marks.Table(tests)
	must.Have(
		t, "the table", table,
		"| nightly | `a` | `Night` | a minute |",
		"| nightly | `a` | cases of `Core` | one setting |",
		"| nightly on other kernels | `a` | every test that says nothing else | of the package |",
	)
}

func TestFaultsOfMarks(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"no reason":       {"func TestPrivilegedA(t *testing.T) {\n\tM.Nightly(t, \" \")\n}", "a/a_test.go:4: a mark without a reason"},
		"computed reason": {"func TestPrivilegedA(t *testing.T) {\n\tM.Nightly(t, why)\n}", "a/a_test.go:4: a mark without a reason"},
		"in one line":     {"func TestPrivilegedA(t *testing.T) { M.Timed(t, \"rates\") }", "a/a_test.go:3: a mark stands on a line of its own"},
		"in a helper":     {"func helper(t *testing.T) {\n\tM.Nightly(t, \"slow\")\n}", "helper has a mark and is no test"},
		"timed case":      {"func TestPrivilegedA(t *testing.T) {\n\tif x {\n\t\tM.Timed(t, \"rates\")\n\t}\n}", "mark.Timed stands on a case"},
		"contradiction": {
			"func TestPrivilegedA(t *testing.T) {\n\tM.Kernels(t, \"a\")\n\tM.NightlyKernels(t, \"b\")\n}",
			"TestPrivilegedA is marked with Kernels and NightlyKernels",
		},
		"no mark for all": {`var _ = M.EveryTest(M.Some, "x")`, "mark.EveryTest wants a mark first"},
		"no such mark":    {"func TestPrivilegedA(t *testing.T) {\n\tM.Sometimes(t, \"x\")\n}", "mark.Sometimes is none of"},
	} {
		t.Run(name, func(t *testing.T) {
			_, faults, err := marks.Read(write(t, map[string]string{"a/a_test.go": "package a\n\n" + strings.ReplaceAll(tt.body, "M.", "mark.") + "\n"}))
			if err != nil || !strings.Contains(strings.Join(faults, "\n"), tt.want) {
				t.Errorf("faults are %q, %v, want %q", faults, err, tt.want)
			}
		})
	}
	_, faults, err := marks.Read(write(t, map[string]string{
		"a/a_test.go": "package a\nfunc TestPrivilegedSame(t *testing.T) {\n\tmark.Timed(t, \"rates\")\n}\n",
		"b/b_test.go": "package b\nfunc TestPrivilegedSame(t *testing.T) {}\n",
	}))
	if err != nil || len(faults) != 1 || !strings.Contains(faults[0], "rename one") {
		t.Errorf("of two tests of a name, one of them timed: %q, %v", faults, err)
	}
}

func TestReplace(t *testing.T) {
	page := "a\n<!-- marks: begin -->\nold\n<!-- marks: end -->\nb\n"
	must.Be(t, "Replace()", strings.Replace(page, "old", "new", 1), must.Get(marks.Replace(page, "new\n"))(t))
	must.Fail(t, "Replace() of a page without a place", must.Err(marks.Replace("a\n", "new\n")))
}

// TestMarksOfThisRepository holds every mark to its form, and the page to what the
// marks say: "go run ./tools/tiers page" writes it.
func TestMarksOfThisRepository(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	tests, faults, err := marks.Read(root)
	must.OK(t, err)
	for _, fault := range faults {
		t.Error(fault)
	}
	raw := must.Get(os.ReadFile(filepath.Join(root, marks.Page)))(t)
	want := must.Get(marks.Replace(string(raw), marks.Table(tests)))(t)
	must.Match(t, marks.Page+" is not what the marks say; run \"go run ./tools/tiers page\"", want, string(raw))
}
