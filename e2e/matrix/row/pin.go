// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package row

import (
	"fmt"
	"strings"
)

// Pin is a module whose programs the tests build.
type Pin struct {
	Module string `json:"module"`
	// Version is the one that a go.mod names, Newest the one that the module proxy had last.
	Version string `json:"version"`
	Newest  string `json:"newest"`
	// Date of Newest, as 2006-01-02.
	Date string `json:"date"`
}

// Behind says how far Version is from Newest: in minor releases if the major one is the
// same, else by the first part that differs.
func (p Pin) Behind() string {
	have, want := parts(p.Version), parts(p.Newest)
	for i, name := range [...]string{"major", "minor", "patch"} {
		if n := want[i] - have[i]; n > 0 {
			return fmt.Sprintf("%d %s", n, name)
		} else if n < 0 {
			break
		}
	}
	return "0"
}

// parts of v1.2.3-rc.1 are 1, 2 and 3; what is no number is 0.
func parts(version string) (out [3]int) {
	release, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	for i, part := range strings.SplitN(release, ".", 3) {
		_, _ = fmt.Sscanf(part, "%d", &out[i])
	}
	return out
}

// PinTable is a table in Markdown, a line for each.
func PinTable(pins []Pin) string {
	var b strings.Builder
	b.WriteString("| module | tested | newest | of | releases behind |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range pins {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", p.Module, p.Version, p.Newest, p.Date, p.Behind())
	}
	return b.String()
}
