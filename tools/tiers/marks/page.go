// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package marks

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Table is the page's table of what the marks say: a row for each reason, with the tests
// that have it. Packages that follow one another and have the same row share it.
func Table(tests []Test) string {
	type row struct {
		kind     Kind
		dir, why string
	}
	var rows []row
	names := map[row][]string{}
	for i := range tests {
		t := &tests[i]
		for _, m := range t.Marks {
			if m.Kind == Slow {
				continue // of interest to "make quick" alone
			}
			r := row{m.Kind, t.Dir, m.Why}
			if names[r] == nil {
				rows = append(rows, r)
			}
			name := "`" + strings.TrimPrefix(t.Name, "TestPrivileged") + "`"
			switch {
			case m.Cases:
				name = "cases of " + name
			case m.Package:
				name = "every test that says nothing else"
			}
			if !slices.Contains(names[r], name) {
				names[r] = append(names[r], name)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return slices.Index(kinds, a.kind) - slices.Index(kinds, b.kind) })
	var b strings.Builder
	b.WriteString("| mark | package | tests | reason |\n| --- | --- | --- | --- |\n")
	for i := 0; i < len(rows); {
		r, tests := rows[i], strings.Join(names[rows[i]], ", ")
		dirs := []string{"`" + r.dir + "`"}
		for i++; i < len(rows) && rows[i].kind == r.kind && rows[i].why == r.why && strings.Join(names[rows[i]], ", ") == tests; i++ {
			dirs = append(dirs, "`"+rows[i].dir+"`")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", titles[r.kind], strings.Join(dirs, ", "), tests, r.why)
	}
	return b.String()
}

var titles = map[Kind]string{
	Nightly:        "nightly",
	NightlyKernels: "nightly on other kernels",
	Timed:          "alone on the machine",
	Kernels:        "on emulated kernels, too",
}

// The table stands between these lines of a page.
const (
	pageBegin = "<!-- marks: begin -->\n"
	pageEnd   = "<!-- marks: end -->\n"
)

// Replace puts a table between the marks of a page.
func Replace(page, table string) (string, error) {
	before, rest, ok := strings.Cut(page, pageBegin)
	_, after, ended := strings.Cut(rest, pageEnd)
	if !ok || !ended {
		return "", fmt.Errorf("the page lacks the lines %q and %q", strings.TrimSpace(pageBegin), strings.TrimSpace(pageEnd))
	}
	return before + pageBegin + table + pageEnd + after, nil
}

// Page is the page with the table, below the root of the repository.
var Page = filepath.Join("docs", "contributing", "testing.md")
