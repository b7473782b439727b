// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"fmt"
	"go/ast"
	"path"
)

// maxPositional is how many values of a struct a test may give without the names of
// their fields.
const maxPositional = 5

// types are the types that the packages of one directory define, by name.
type types map[string]ast.Expr

// namedFields looks at structs of the test's own directory and without a name. go vet
// refuses the others.
func namedFields(t *Tree) []string {
	files, faults := parseGo(t)
	dirs := map[string]types{}
	for _, f := range files {
		dir := path.Dir(f.Path)
		if dirs[dir] == nil {
			dirs[dir] = types{}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				dirs[dir][spec.Name.Name] = spec.Type
			}
			return true
		})
	}
	for _, f := range files {
		if !f.Is("*_test.go") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || lit.Type == nil {
				return true
			}
			for _, bare := range dirs[path.Dir(f.Path)].positional(lit, lit.Type) {
				faults = append(faults, fmt.Sprintf("%s:%d: a literal has %d values without the names of their fields, at most %d",
					f.Path, f.fset.Position(bare.Pos()).Line, len(bare.Elts), maxPositional))
			}
			return true
		})
	}
	return faults
}

// positional returns the struct literals with too many values without names: the
// literal itself, and its elements where they leave their type out.
func (ts types) positional(lit *ast.CompositeLit, typ ast.Expr) (bare []*ast.CompositeLit) {
	var elem ast.Expr
	switch typ := ts.underlying(typ).(type) {
	case *ast.StructType:
		if len(lit.Elts) > maxPositional && !keyed(lit.Elts[0]) {
			return []*ast.CompositeLit{lit}
		}
	case *ast.ArrayType:
		elem = typ.Elt
	case *ast.MapType:
		elem = typ.Value
	}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
		}
		if inner, ok := e.(*ast.CompositeLit); ok && inner.Type == nil {
			bare = append(bare, ts.positional(inner, elem)...)
		}
	}
	return bare
}

// underlying follows names and pointers to a type's form; nil where they lead out of
// the directory.
func (ts types) underlying(typ ast.Expr) ast.Expr {
	seen := map[string]bool{}
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.SelectorExpr:
			typ = t.Sel
		case *ast.Ident:
			if seen[t.Name] {
				return nil
			}
			seen[t.Name] = true
			typ = ts[t.Name]
		default:
			return typ
		}
	}
}

func keyed(e ast.Expr) bool {
	_, ok := e.(*ast.KeyValueExpr)
	return ok
}
