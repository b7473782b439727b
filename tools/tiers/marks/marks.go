// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package marks reads from the source when and where each privileged test runs
// (package plugin/testutil/mark), and selects tests by that.
package marks

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/podweir/podweir/e2e/step"
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

var kinds = []Kind{Slow, Nightly, NightlyKernels, Timed, Kernels}

// Mark is one mark of a test.
type Mark struct {
	Kind Kind
	// Why is the reason.
	Why string
	// Cases says that it is on cases of the test, not on the whole test, Package that
	// the test has it from its package.
	Cases, Package bool
}

// Test is a test function with its marks, in the order of the source.
type Test struct {
	// Dir is the directory of the package, relative to the root and with slashes.
	Dir, Name string
	// Nested says that the package belongs to a module of its own.
	Nested bool
	Marks  []Mark
}

// Privileged says whether the test needs root and the kernel.
func (t *Test) Privileged() bool { return strings.HasPrefix(t.Name, "TestPrivileged") }

// Whole says whether a mark is on the whole test.
func (t *Test) Whole(k Kind) bool {
	return slices.ContainsFunc(t.Marks, func(m Mark) bool { return m.Kind == k && !m.Cases })
}

// Place is where tests run.
type Place string

// The places.
const (
	// Shared is this machine's kernel, beside other tests.
	Shared Place = "shared"
	// Alone is this machine's kernel, with nothing beside it.
	Alone Place = "alone"
	// OtherKernels are the emulated ones.
	OtherKernels Place = "kernels"
	// OtherKernelsAlone are the emulated ones, after all other tests there.
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

// Packages are the directories of selected tests as arguments of go. Those with most tests
// come first: what begins last ends last, while the others wait for it.
func Packages(selected map[string][]string) []string {
	dirs := slices.Collect(maps.Keys(selected))
	slices.SortFunc(dirs, func(a, b string) int {
		return cmp.Or(len(selected[b])-len(selected[a]), strings.Compare(a, b))
	})
	for i := range dirs {
		dirs[i] = "./" + dirs[i]
	}
	return dirs
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
// marks that cannot be read, that have no reason or that contradict one another.
func Read(root string) (tests []Test, faults []string, err error) {
	nested := map[string]bool{}
	packages := map[string][]Mark{}
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
			f, err := readFile(path, dir)
			if err != nil {
				return err
			}
			for i := range f.tests {
				f.tests[i].Nested = nested[dir]
			}
			tests = append(tests, f.tests...)
			packages[dir] = append(packages[dir], f.every...)
			faults = append(faults, f.faults...)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range tests {
		if t := &tests[i]; t.Privileged() {
			t.inherit(packages[t.Dir])
		}
	}
	slices.SortFunc(tests, func(a, b Test) int { return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Name, b.Name)) })
	return tests, append(faults, contradictions(tests)...), nil
}

// inherit adds the marks of the package, but for one that the test's own answers: who
// says it of some cases does not mean it of all, and Kernels is not NightlyKernels.
func (t *Test) inherit(every []Mark) {
	for _, m := range every {
		own := slices.ContainsFunc(t.Marks, func(o Mark) bool { return o.Kind == m.Kind })
		if !own && (m.Kind != NightlyKernels || !t.Whole(Kernels)) {
			m.Package = true
			t.Marks = append(t.Marks, m)
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

// What is read of a test's file. A mark is on a line of its own, indented once where it is a
// statement of the test itself; gofmt leaves one elsewhere only in a function of one line.
var (
	function = regexp.MustCompile(`^func (\(.*?\) )?(\w+)\(`)
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)`)
	inline   = regexp.MustCompile(`[{;] mark\.\w+\(`)
	marked   = regexp.MustCompile(`^(\t*)(?:_ = |var _ = )?mark\.(?:(EveryTest)\((?:mark\.)?)?(\w+)(?:\(\w+)?(?:, ("(?:[^"\\]|\\.)*")\)$)?`)
)

// file is what a file says.
type file struct {
	tests  []Test
	every  []Mark
	faults []string
}

func readFile(path, dir string) (_ file, err error) {
	defer step.End(&err)
	data := step.Get(os.ReadFile(path))
	f, in, n := file{}, Test{Dir: dir}, 0
	isTest := func() bool { return testName.MatchString(in.Name) && in.Name != "TestMain" }
	ends := func() {
		if isTest() {
			f.tests = append(f.tests, in)
		}
	}
	for line := range strings.Lines(string(data)) {
		n++
		fault := func(format string, args ...any) {
			f.faults = append(f.faults, fmt.Sprintf("%s/%s:%d: ", dir, filepath.Base(path), n)+fmt.Sprintf(format, args...))
		}
		if m := function.FindStringSubmatch(line); m != nil {
			ends()
			in = Test{Dir: dir, Name: m[2]}
			if m[1] != "" {
				in.Name = "method " + in.Name
			}
		}
		m := marked.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			if inline.MatchString(line) {
				fault("a mark stands on a line of its own")
			}
			continue
		}
		read := Mark{Kind: Kind(m[3]), Cases: m[1] != "\t"}
		read.Why, _ = strconv.Unquote(m[4])
		if strings.TrimSpace(read.Why) == "" {
			fault("a mark without a reason; the last argument is a string literal that says why")
		}
		switch known := slices.Contains(kinds, read.Kind); {
		case m[2] != "" && known:
			read.Cases = false
			f.every = append(f.every, read)
		case m[2] != "":
			fault("mark.EveryTest wants a mark first, one of %v", kinds)
		case !known:
			fault("mark.%s is none of %v", read.Kind, kinds)
		case !isTest():
			fault("%s has a mark and is no test; a mark stands in the test's own function", in.Name)
		case read.Cases && (read.Kind == Timed || read.Kind == Kernels):
			fault("mark.%s stands on a case; it can only be on a whole test, as a statement of its function", read.Kind)
		default:
			in.Marks = append(in.Marks, read)
		}
	}
	ends()
	return f, nil
}
