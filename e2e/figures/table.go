// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package figures writes tables and charts of what was measured, for pages and
// terminals. It measures and judges nothing.
package figures

import (
	"fmt"
	"strings"
)

// Table is one of a page.
type Table struct {
	Title, Note string
	Header      []string
	Rows        [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// cell keeps a text within its cell.
var cell = strings.NewReplacer("|", `\|`, "\n", "<br>")

// Markdown is the table alone, without its title and note.
func (t *Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.Header, " | "), strings.Repeat(" --- |", len(t.Header)))
	for _, row := range t.Rows {
		for _, text := range row {
			b.WriteString("| " + cell.Replace(text) + " ")
		}
		b.WriteString("|\n")
	}
	return b.String()
}
