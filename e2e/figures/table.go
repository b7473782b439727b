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
	Header []string
	Rows   [][]string
}

// cell keeps a text within its cell.
var cell = strings.NewReplacer("|", `\|`, "\n", "<br>")

// Markdown is the table as a page has it.
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

// Rate writes a rate of bits per second as an annotation would: 10M, 1G.
func Rate(bitsPerSec uint64) string {
	switch {
	case bitsPerSec%1e9 == 0:
		return fmt.Sprintf("%dG", bitsPerSec/1e9)
	case bitsPerSec%1e6 == 0:
		return fmt.Sprintf("%dM", bitsPerSec/1e6)
	default:
		return fmt.Sprintf("%dk", bitsPerSec/1e3)
	}
}
