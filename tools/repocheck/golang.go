// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

func goRules() []Rule {
	return []Rule{
		{"every package has one package comment", packageComments},
		{"functions stay short", funcSizes},
		{"a test that needs root is called TestPrivileged", privilegedNames},
		{"log messages say what happened", logMessages},
		{"tests name the fields of long literals", namedFields},
	}
}

// parsed is a Go file with its syntax tree.
type parsed struct {
	*File
	fset *token.FileSet
	ast  *ast.File
}

// parseGo parses, once for a tree, every Go file that a person wrote; a file that does
// not parse is a fault.
func parseGo(t *Tree) (files []parsed, faults []string) {
	t.parse.Do(func() { t.parsed, t.faults = parseAll(t) })
	return t.parsed, slices.Clone(t.faults)
}

func parseAll(t *Tree) (files []parsed, faults []string) {
	for i := range t.Files {
		f := &t.Files[i]
		if !f.Is("*.go") || f.Generated() {
			continue
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, f.Path, f.Data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		files = append(files, parsed{f, fset, tree})
	}
	return files, faults
}

func packageComments(t *Tree) []string {
	files, faults := parseGo(t)
	docs := map[string][]parsed{}
	var dirs []string
	for _, f := range files {
		dir := path.Dir(f.Path)
		if f.Is("*_test.go") {
			continue
		}
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		if f.ast.Doc != nil && f.ast.Doc.Text() != "" {
			docs[dir] = append(docs[dir], f)
		}
	}
	for _, dir := range dirs {
		if n := len(docs[dir]); n != 1 {
			faults = append(faults, fmt.Sprintf("%s: %d package comments, want one", dir, n))
			continue
		}
		f := docs[dir][0]
		want := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			want = "Command " + path.Base(dir) + " "
		}
		if got := f.ast.Doc.Text(); !strings.HasPrefix(got, want) {
			faults = append(faults, fmt.Sprintf("%s: the package comment begins with %.30q, want %q", f.Path, got, want))
		}
	}
	return faults
}

// Limits of a function in lines, comments in it included. A test's tables are
// data and read from top to bottom.
const (
	maxFuncLines     = 80
	maxTestFuncLines = 150
)

func funcSizes(t *Tree) []string {
	files, faults := parseGo(t)
	used := map[string]bool{}
	for _, f := range files {
		limit := maxFuncLines
		if f.Is("*_test.go") {
			limit = maxTestFuncLines
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			start := f.fset.Position(fn.Pos()).Line
			n := f.fset.Position(fn.End()).Line - start + 1
			if n <= limit {
				continue
			}
			if key := f.Path + ":" + fn.Name.Name; longFuncs[key] != "" {
				used[key] = true
				continue
			}
			faults = append(faults, fmt.Sprintf("%s:%d: %s has %d lines, at most %d", f.Path, start, fn.Name.Name, n, limit))
		}
	}
	return append(faults, stale("longFuncs", longFuncs, used)...)
}

// privilegedHelper is the call that skips a test without root.
var privilegedHelper = regexp.MustCompile(`^(?:testutil\.)?(?:RequireRoot|Privileged|privileged|requireRoot)$`)

func privilegedNames(t *Tree) []string {
	files, faults := parseGo(t)
	for _, f := range files {
		if !f.Is("*_test.go") {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || !callsPrivileged(fn) {
				continue
			}
			if !strings.HasPrefix(fn.Name.Name, "TestPrivileged") {
				faults = append(faults, fmt.Sprintf("%s: %s needs root, so its name begins with TestPrivileged", f.Path, fn.Name.Name))
			}
		}
	}
	return faults
}

func callsPrivileged(fn *ast.FuncDecl) bool {
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			name := ""
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr:
				name = fun.Sel.Name
			}
			found = found || privilegedHelper.MatchString(name)
		}
		return !found
	})
	return found
}
