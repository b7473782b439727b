// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const troubleshooting = "../../../docs/howto/troubleshoot.md"

// What stands between them is made from the cases.
const nightBegin, nightEnd = "<!-- cases: made by TestPrivilegedNight -->\n", "<!-- end of the cases -->\n"

// TestTroubleshootingPage: the page has the transcripts that TestPrivilegedNight recorded.
func TestTroubleshootingPage(t *testing.T) {
	page, err := os.ReadFile(troubleshooting)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(withNight(t, string(page)), string(page)); diff != "" {
		t.Errorf("%s is not what %s=1 writes (-want +got):\n%s", troubleshooting, envTroubleshooting, diff)
	}
	for _, c := range nightCases() {
		if n := len(c.steps); n == 0 || n > 3 || len(c.steps[n-1].sees) == 0 {
			t.Errorf("%s: %d steps, want one to three of which the last names the cause", c.name, n)
		}
	}
}

func writeTroubleshooting(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(troubleshooting)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(troubleshooting, []byte(withNight(t, string(page))), 0o644); err != nil {
		t.Fatal(err)
	}
}

// withNight is the page with the cases as they are now.
func withNight(t *testing.T, page string) string {
	t.Helper()
	before, rest, ok := strings.Cut(page, nightBegin)
	_, after, end := strings.Cut(rest, nightEnd)
	if !ok || !end {
		t.Fatalf("%s has no place for the cases: %q and %q", troubleshooting, nightBegin, nightEnd)
	}
	return before + nightBegin + renderNight(t) + nightEnd + after
}

// anchor is the fragment that GitHub makes of a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

func renderNight(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| symptom | first command |\n| --- | --- |\n")
	for _, c := range nightCases() {
		fmt.Fprintf(&b, "| [%s](#%s) | `%s` |\n", c.symptom, anchor(c.symptom), c.steps[0].command)
	}
	for _, c := range nightCases() {
		text, err := os.ReadFile(filepath.Join(nightDir, c.name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n### %s\n\n```text\n%s```\n\n**What it means.** %s\n\n**Cure.** %s\n", c.symptom, text, c.means, c.cure)
	}
	b.WriteString("\n")
	return b.String()
}
