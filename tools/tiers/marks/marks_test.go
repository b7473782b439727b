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
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

// source is a file of tests: it has a space before each line and M for mark here, so that it is
// not taken for tests of this package.
func source(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll("\n"+text, "\n ", "\n"), "M.", "mark.")
}

const marked = ` package a

 var _ = M.EveryTest(M.NightlyKernels, "of the package")

 func TestPrivilegedPlain(t *testing.T) {}

 func TestPrivilegedTimed(t *testing.T) {
 	M.Timed(t, "rates")
 }

 func TestPrivilegedCore(t *testing.T) {
 	testutil.RequireRoot(t)
 	M.Kernels(t, "the verifier differs")
 	for range 2 {
 		t.Run("", func(t *testing.T) { M.Nightly(t, "one setting") })
 	}
 }

 func TestPrivilegedNight(t *testing.T) {
 	M.Nightly(t, "a minute")
 }

 func TestPrivilegedClock(t *testing.T) {
 	M.Timed(t, "needs fq")
 	M.Kernels(t, "needs fq")
 }

 func TestPrivilegedSome(t *testing.T) {
 	for range 2 {
 		t.Run("", func(t *testing.T) { M.NightlyKernels(t, "all but what needs a queue") })
 	}
 }

 func TestUnit(t *testing.T) {
 	M.Slow(t, "a second")
 }
`

func TestSelection(t *testing.T) {
	root := write(t, map[string]string{
		"go.mod": "", "a/a_test.go": source(marked),
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
	if diff := cmp.Diff(want, got, sorted); diff != "" {
		t.Errorf("selected tests (-want +got):\n%s", diff)
	}
	if got, want := marks.Pattern([]string{"TestPrivilegedA", "TestPrivilegedB"}), "^TestPrivileged(A|B)$"; got != want {
		t.Errorf("Pattern() = %q, want %q", got, want)
	}
}

func TestFaultsOfMarks(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"in a helper": {" func helper(t *testing.T) {\n \tM.Nightly(t, \"slow\")\n }", "a/a_test.go:3: a mark stands in the test's own function"},
		"timed case":  {" func TestPrivilegedA(t *testing.T) {\n \tif x {\n \t\tM.Timed(t, \"rates\")\n \t}\n }", "a/a_test.go:4: mark.Timed can only be on a whole test"},
		"contradiction": {
			" func TestPrivilegedA(t *testing.T) {\n \tM.Kernels(t, \"a\")\n \tM.NightlyKernels(t, \"b\")\n }",
			"TestPrivilegedA is marked with Kernels and NightlyKernels",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, faults, err := marks.Read(write(t, map[string]string{"a/a_test.go": source(tt.body)}))
			if err != nil || !strings.Contains(strings.Join(faults, "\n"), tt.want) {
				t.Errorf("faults are %q, %v, want %q", faults, err, tt.want)
			}
		})
	}
	_, faults, err := marks.Read(write(t, map[string]string{
		"a/a_test.go": source(" func TestPrivilegedSame(t *testing.T) {\n \tM.Timed(t, \"rates\")\n }"),
		"b/b_test.go": source(" func TestPrivilegedSame(t *testing.T) {}"),
	}))
	if err != nil || len(faults) != 1 || !strings.Contains(faults[0], "rename one") {
		t.Errorf("of two tests of a name, one of them timed: %q, %v", faults, err)
	}
}

// TestMarksOfThisRepository holds every mark to its form.
func TestMarksOfThisRepository(t *testing.T) {
	_, faults, err := marks.Read(filepath.Join("..", "..", ".."))
	must.OK(t, err)
	for _, fault := range faults {
		t.Error(fault)
	}
}
