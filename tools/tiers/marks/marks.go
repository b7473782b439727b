// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package marks reads from the source when and where each privileged test runs
// (package plugin/testutil/mark), and selects tests by that.
package marks

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/testutil/mark"
)

// Kind is the name of a mark, as the function of package mark is called.
type Kind string

// The kinds of marks.
const (
	Slow           Kind = "Slow"
	Nightly        Kind = "Nightly"
	NightlyKernels Kind = "NightlyKernels"
	Timed          Kind = "Timed"
	Kernels        Kind = "Kernels"
)

// Test is a test function with its marks.
type Test struct {
	// Dir is the directory of the package, relative to the root and with slashes.
	Dir, Name string
	// Nested says that the package belongs to a module of its own.
	Nested bool
	// Marks are on the whole test, or only on cases of it.
	Marks, Cases []Kind
}

// Privileged says whether the test needs root and the kernel.
func (t *Test) Privileged() bool { return strings.HasPrefix(t.Name, "TestPrivileged") }

// Whole says whether a mark is on the whole test.
func (t *Test) Whole(k Kind) bool { return slices.Contains(t.Marks, k) }

// Place is where tests run.
type Place string

// The places.
const (
	// Shared is this machine's kernel, beside other tests.
	Shared Place = "shared"
	// Alone is this machine's kernel, with nothing beside it.
	Alone Place = "alone"
	// OtherKernels are the emulated ones, several machines at once.
	OtherKernels Place = "kernels"
	// OtherKernelsAlone are the emulated ones, one machine at a time.
	OtherKernelsAlone Place = "kernels-alone"
)

// Places lists them.
func Places() []Place { return []Place{Shared, Alone, OtherKernels, OtherKernelsAlone} }

// Tiers lists what a place can be asked for.
func Tiers() []string { return []string{mark.TierTest, mark.TierGate, mark.TierAll} }

// Selected says whether a test runs in a tier at a place. Of a nested module none
// does: those have targets of their own.
func (t *Test) Selected(tier string, at Place) bool {
	if !t.Privileged() || t.Nested || (t.Whole(Nightly) && tier != mark.TierAll) {
		return false
	}
	timed := t.Whole(Timed)
	if (at == Alone || at == OtherKernelsAlone) != timed {
		return false
	}
	switch {
	case at == OtherKernelsAlone:
		return t.Whole(Kernels) && tier != mark.TierTest
	case at == Shared || at == Alone, t.Whole(Kernels):
		return true
	case tier == mark.TierTest:
		return false
	default:
		return tier == mark.TierAll || !t.Whole(NightlyKernels)
	}
}

// Select returns the tests that run in a tier at a place, by directory.
func Select(tests []Test, tier string, at Place) map[string][]string {
	selected := map[string][]string{}
	for i := range tests {
		if t := &tests[i]; t.Selected(tier, at) {
			selected[t.Dir] = append(selected[t.Dir], t.Name)
		}
	}
	return selected
}

// Pattern is the regular expression of go test for exactly these tests.
func Pattern(names []string) string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = regexp.QuoteMeta(strings.TrimPrefix(name, "TestPrivileged"))
	}
	return "^TestPrivileged(" + strings.Join(short, "|") + ")$"
}

// Read reads the tests below root, sorted by directory and name. The faults name
// marks that stand where they are not read, or that contradict one another.
func Read(root string) (tests []Test, faults []string, err error) {
	nested := map[string]bool{}
	packages := map[string][]Kind{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		switch {
		case d.IsDir() && (rel == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && rel != "."):
			return filepath.SkipDir
		case d.IsDir():
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			nested[filepath.ToSlash(rel)] = rel != "." && (err == nil || nested[dir])
		case strings.HasSuffix(rel, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found, every, wrong := parse(filepath.ToSlash(rel), string(text))
			for _, t := range found {
				t.Dir, t.Nested = dir, nested[dir]
				tests = append(tests, t)
			}
			packages[dir] = append(packages[dir], every...)
			faults = append(faults, wrong...)
		}
		return nil
	})
	for i := range tests {
		if t := &tests[i]; t.Privileged() {
			t.inherit(packages[t.Dir])
		}
	}
	slices.SortFunc(tests, func(a, b Test) int { return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Name, b.Name)) })
	return tests, append(faults, contradictions(tests)...), err
}

// inherit adds the marks of the package, but for one that the test's own answers: who
// says it of some cases does not mean it of all, and Kernels is not NightlyKernels.
func (t *Test) inherit(every []Kind) {
	for _, k := range every {
		own := t.Whole(k) || slices.Contains(t.Cases, k)
		if !own && (k != NightlyKernels || !t.Whole(Kernels)) {
			t.Marks = append(t.Marks, k)
		}
	}
}

func contradictions(tests []Test) []string {
	var faults []string
	alone := map[string]bool{}
	for i := range tests {
		t := &tests[i]
		if t.Whole(Kernels) && t.Whole(NightlyKernels) {
			faults = append(faults, fmt.Sprintf("%s: %s is marked with Kernels and NightlyKernels", t.Dir, t.Name))
		}
		if t.Privileged() && !t.Nested {
			alone[t.Name] = alone[t.Name] || t.Whole(Timed)
		}
	}
	for i := range tests {
		if t := &tests[i]; t.Privileged() && !t.Nested && alone[t.Name] && !t.Whole(Timed) {
			faults = append(faults, fmt.Sprintf("%s: %s is not Timed, and a test of that name elsewhere is: rename one", t.Dir, t.Name))
		}
	}
	return faults
}

// A function begins at the left, as gofmt has it, and a statement of its own body, which marks
// the whole test, behind one tab.
var (
	function  = regexp.MustCompile(`^func ((Test|Fuzz|Benchmark)?\w*)`)
	everyTest = regexp.MustCompile(`\b_ = mark\.EveryTest\(mark\.(\w+), "`)
	marked    = regexp.MustCompile(`^(\t+)?.*\bmark\.(Slow|Nightly|NightlyKernels|Timed|Kernels)\(\w+, "`)
)

// parse finds the tests of a file, and the marks of every test of its package.
func parse(file, text string) (tests []Test, every []Kind, faults []string) {
	var in *Test
	n := 0
	for line := range strings.Lines(text) {
		n++
		if m := everyTest.FindStringSubmatch(line); m != nil {
			every = append(every, Kind(m[1]))
		}
		if m := function.FindStringSubmatch(line); m != nil {
			if in = nil; m[2] != "" && m[1] != "TestMain" {
				tests = append(tests, Test{Name: m[1]})
				in = &tests[len(tests)-1]
			}
		}
		m := marked.FindStringSubmatch(line)
		switch {
		case m == nil:
		case in == nil:
			faults = append(faults, fmt.Sprintf("%s:%d: a mark stands in the test's own function", file, n))
		case m[1] == "\t" && strings.HasPrefix(line, "\tmark."):
			in.Marks = append(in.Marks, Kind(m[2]))
		case m[2] == string(Timed) || m[2] == string(Kernels):
			faults = append(faults, fmt.Sprintf("%s:%d: mark.%s can only be on a whole test, as a statement of its function", file, n, m[2]))
		default:
			in.Cases = append(in.Cases, Kind(m[2]))
		}
	}
	return tests, every, faults
}
