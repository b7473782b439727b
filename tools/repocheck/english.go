// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package repocheck

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// banned are phrases that a reader has to read twice, and what to write
// instead. The patterns are put together from pieces so that this file stays
// clean.
var banned = []struct {
	phrase  *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\bbe h` + `ad\b`), "is available"},
	{regexp.MustCompile(`(?:^|[ (])an` + `ew(?:[ .,;:)]|$)`), "again"},
	{regexp.MustCompile(`\b(?:was|were|is|are|what|mode|queue|that|nobody) (?:it )?asked ` + `for\b`), "requested"},
	{regexp.MustCompile(`\bby that ` + `of\b`), "relative to the"},
	{regexp.MustCompile(`\b(?:is|are) asked (?:bef` + `ore|beh` + `ind|fi` + `rst|la` + `st)\b`), "runs before, after, first or last"},
	{regexp.MustCompile(`\bki` + `n\b`), "the family"},
	{regexp.MustCompile(`\b(?:gets|get) on ` + `with\b`), "works beside"},
}

// plainEnglish holds documents, comments and messages to words of the field.
// Results that are committed keep the words of their day.
func plainEnglish(t *Tree) []string {
	prose := func(f *File) bool {
		return f.Is("*.md", "*.go", "*.yaml", "*.sh", "Makefile", "*.txt", "*.tpl") && !strings.HasPrefix(f.Path, "docs/results/")
	}
	var faults []string
	for _, b := range banned {
		faults = append(faults, grepAll(t, prose, b.phrase, "write "+b.instead)...)
	}
	return faults
}

// logMethods are those of slog.Logger, with the place of the message among
// their arguments.
var logMethods = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "Log": 2, "LogAttrs": 2,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
}

// happened matches a verb in a form that tells of an event or a state: "pod
// reconciled", "scrape failed", "podweir's binary is missing".
var happened = regexp.MustCompile(`\b(?:[a-z]+ed|is|are|was|has|have|cannot|put|left|lost|read|written|sent|taken|told|begun|starts?|stays?|goes)\b`)

// logMessages checks that each message of a log says what happened: two words
// or more, one of them a verb.
func logMessages(t *Tree) []string {
	files, faults := parseGo(t)
	for _, f := range files {
		if f.Is("*_test.go") || !strings.HasPrefix(f.Path, "plugin/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			message, ok := logged(n)
			if ok && (!strings.Contains(message, " ") || !happened.MatchString(message)) {
				faults = append(faults, fmt.Sprintf("%s:%d: log message %q does not say what happened, such as \"pod reconciled\"",
					f.Path, f.fset.Position(n.Pos()).Line, message))
			}
			return true
		})
	}
	return faults
}

// logged returns the constant message of a call of a logger.
func logged(n ast.Node) (message string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isLogger(method.X) {
		return "", false
	}
	at, ok := logMethods[method.Sel.Name]
	if !ok || at >= len(call.Args) {
		return "", false
	}
	text, ok := call.Args[at].(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", false
	}
	message, err := strconv.Unquote(text.Value)
	return message, err == nil
}

// isLogger goes by names, since only syntax is known: log, c.Log, w.cfg.Log,
// p.logger().
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.EqualFold(x.Name, "log") || strings.EqualFold(x.Name, "logger")
	case *ast.SelectorExpr:
		return isLogger(x.Sel)
	case *ast.CallExpr:
		return isLogger(x.Fun)
	}
	return false
}
