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

// TestTroubleshootingPage: the page has the cases of which TestPrivilegedNight recorded transcripts.
func TestTroubleshootingPage(t *testing.T) {
	page, err := os.ReadFile(troubleshooting)
	if err != nil {
		t.Fatal(err)
	}
	want := withNight(t, string(page))
	if os.Getenv(envTroubleshooting) != "" {
		if err := os.WriteFile(troubleshooting, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("%s is not what %s=1 writes (-want +got):\n%s", troubleshooting, envTroubleshooting, diff)
	}
	for _, c := range nightCases() {
		if n := len(c.steps); n == 0 || n > 3 || len(c.steps[n-1].sees) == 0 {
			t.Errorf("%s: %d steps, want one to three of which the last names the cause", c.name, n)
		}
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

func renderNight(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| symptom | run | it says | it means | cure |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range nightCases() {
		if _, err := os.Stat(filepath.Join(nightDir, c.name+".txt")); err != nil {
			t.Fatal(err)
		}
		last := c.steps[len(c.steps)-1]
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", c.symptom, last.command, strings.ReplaceAll(last.sees[0], "|", "\\|"), c.means, c.cure)
	}
	b.WriteString("\n")
	return b.String()
}
