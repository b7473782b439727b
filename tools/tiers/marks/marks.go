// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package marks reads from the source when and where each privileged test runs
// (package plugin/testutil/mark), and selects tests by that.
package marks

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// file is what a file says.
type file struct {
	tests  []Test
	every  []Mark
	faults []string
}

func readFile(path, dir string) (file, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	f := file{}
	fault := func(at token.Pos, format string, args ...any) {
		p := fset.Position(at)
		f.faults = append(f.faults, fmt.Sprintf("%s:%d: ", dir+"/"+filepath.Base(path), p.Line)+fmt.Sprintf(format, args...))
	}
	for _, d := range tree.Decls {
		fn, isFunc := d.(*ast.FuncDecl)
		if !isFunc {
			f.every = append(f.every, everyTest(d, fault)...)
			continue
		}
		if fn.Body == nil {
			continue
		}
		t := Test{Dir: dir, Name: fn.Name.Name}
		own := map[ast.Node]bool{}
		for _, s := range fn.Body.List {
			if s, ok := s.(*ast.ExprStmt); ok {
				own[s.X] = true
			}
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			kind, ok := kindOf(call.Fun)
			if !ok {
				return true
			}
			m := Mark{Kind: kind, Why: reason(call, fault), Cases: !own[call]}
			if m.Cases && (kind == Timed || kind == Kernels) {
				fault(call.Pos(), "mark.%s stands on a case; it can only be on a whole test, as a statement of its function", kind)
			}
			t.Marks = append(t.Marks, m)
			return true
		})
		if fn.Recv == nil && isTest(t.Name) {
			f.tests = append(f.tests, t)
		} else if len(t.Marks) > 0 {
			fault(fn.Pos(), "%s has a mark and is no test; a mark stands in the test's own function", t.Name)
		}
	}
	return f, nil
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") && name != "TestMain" || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Benchmark")
}

// everyTest reads declarations of mark.EveryTest.
func everyTest(d ast.Decl, fault func(token.Pos, string, ...any)) (all []Mark) {
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !isMark(call.Fun, "EveryTest") {
			return true
		}
		kind, ok := kindOf(call.Args[0])
		if !ok {
			fault(call.Pos(), "mark.EveryTest wants a mark first, one of %v", kinds)
			return false
		}
		all = append(all, Mark{Kind: kind, Why: reason(call, fault)})
		return false
	})
	return all
}

func isMark(e ast.Expr, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "mark"
}

func kindOf(e ast.Expr) (Kind, bool) {
	for _, k := range kinds {
		if isMark(e, string(k)) {
			return k, true
		}
	}
	return "", false
}

// reason is the last argument of a mark, which must be a literal.
func reason(call *ast.CallExpr, fault func(token.Pos, string, ...any)) string {
	why := ""
	if lit, ok := call.Args[len(call.Args)-1].(*ast.BasicLit); ok && lit.Kind == token.STRING {
		why, _ = strconv.Unquote(lit.Value)
	}
	if strings.TrimSpace(why) == "" {
		fault(call.Pos(), "a mark without a reason; the last argument is a string literal that says why")
	}
	return why
}
