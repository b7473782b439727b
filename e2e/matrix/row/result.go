// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package row

import (
	"fmt"
	"slices"
	"strings"
)

// Outcome is what became of a step.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Step is what became of one step of a row.
type Step struct {
	Name    string
	Outcome Outcome
	// Seconds is how long it took.
	Seconds float64
	// Notes are what was measured, or why it was skipped or failed.
	Notes []string `json:",omitempty"`
}

// Result is one run of a row.
type Result struct {
	Row string
	// Date is the day, Commit git's description of podweir, Kernel the release.
	Date, Commit, Kernel string
	CPUs                 int
	// Versions are those of the cluster's parts.
	Versions string
	// Lacks is the kernel feature for want of which the row did not run.
	Lacks string `json:",omitempty"`
	// PeakMiB is the most memory that the cluster took, in MiB, without the cache of
	// files; 0 if nobody looked.
	PeakMiB uint64 `json:",omitempty"`
	Steps   []Step
}

// Failure is the step that failed, or nil.
func (r *Result) Failure() *Step {
	for i, s := range r.Steps {
		if s.Outcome == Failed {
			return &r.Steps[i]
		}
	}
	return nil
}

// Merge puts new results in the place of old ones of the same rows, in the order
// of the rows; results of rows that are gone are dropped.
func (m *Matrix) Merge(old, results []Result) []Result {
	var out []Result
	for _, r := range m.Rows {
		res := find(results, r.Name)
		if res == nil {
			res = find(old, r.Name)
		}
		if res != nil {
			out = append(out, *res)
		}
	}
	return out
}

// Page is docs/reference/compat-matrix.md.
func (m *Matrix) Page(results []Result, neighbours []Pin) string {
	var b strings.Builder
	b.WriteString(`# CNI matrix

Written by ` + "`make matrix`" + ` from [its rows](../../e2e/matrix/matrix.yaml) and [the last result of each](compat-matrix.json). Each row installs
the primary CNI and podweir in a real Kubernetes cluster of two nodes (containers of one machine), and goes through the steps below.` + memory(results) + `
[How it works, how to run a row, and what time and memory rows take](../contributing/cni-matrix.md). A step that a row leaves out has its reason in the row's table.

## Rows that run here

| row | primary CNI | variant | policy | delivery | result | run |
| --- | --- | --- | --- | --- | --- | --- |
`)
	for _, r := range m.Rows {
		if r.Needs == "" {
			fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s | %s | %s |\n", r.Name, anchor(r.Name), r.Version, r.Variant, r.Policy,
				r.delivery(), find(results, r.Name).Verdict(), when(find(results, r.Name)))
		}
	}
	b.WriteString("\n## Rows that have not run here\n\nThey need a registry of images or a cloud. A job of `.github/workflows/cni-matrix.yml` is prepared for each; " +
		"none of them has run. They do not count as tested.\n\n| row | primary CNI | variant | policy | needs | job | what covers it meanwhile |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range m.Rows {
		if r.Needs != "" {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | `%s` | %s |\n", r.Name, r.Version, r.Variant, r.Policy, r.Needs, r.Job, r.Elsewhere)
		}
	}
	if neighbours != nil {
		b.WriteString("\n## How old these neighbours are\n\nWhat tests build, beside the newest release that the module proxy had when `make outdated` ran last.\n\n" + PinTable(neighbours))
	}
	for _, r := range m.Rows {
		if r.Needs == "" {
			r.section(&b, find(results, r.Name))
		}
	}
	return b.String()
}

// memory is a sentence about the most that a row took.
func memory(results []Result) string {
	var most uint64
	for i := range results {
		most = max(most, results[i].PeakMiB)
	}
	if most == 0 {
		return ""
	}
	return fmt.Sprintf(" The cluster takes %.1f GiB of memory at most.", float64(most)/1024)
}

func (r *Row) delivery() string {
	if r.Scenario == Stock {
		return "without podweir"
	}
	return "`" + r.Delivery + "`"
}

func find(results []Result, name string) *Result {
	for i := range results {
		if results[i].Row == name {
			return &results[i]
		}
	}
	return nil
}

// Verdict is the result in a few words.
func (r *Result) Verdict() string {
	switch {
	case r == nil || r.Lacks == "" && len(r.Steps) == 0:
		return "not run yet"
	case r.Lacks != "":
		return "not run: the kernel lacks " + r.Lacks
	case r.Failure() != nil:
		return "**failed** at " + r.Failure().Name
	}
	passed := 0
	for _, s := range r.Steps {
		if s.Outcome == Passed {
			passed++
		}
	}
	if passed == len(r.Steps) {
		return fmt.Sprintf("all %d steps passed", passed)
	}
	return fmt.Sprintf("%d steps passed, %d left out", passed, len(r.Steps)-passed)
}

func when(r *Result) string {
	if r == nil {
		return ""
	}
	return r.Date
}

// anchor is how a heading is linked.
func anchor(name string) string { return strings.ReplaceAll(name, ".", "") }

func (r *Row) section(b *strings.Builder, res *Result) {
	fmt.Fprintf(b, "\n## %s\n\n- **Real**: %s.\n", r.Name, r.Real)
	if r.StandsIn != "" {
		fmt.Fprintf(b, "- **Stands in**: %s.\n", r.StandsIn)
	}
	if r.Profile != "" {
		fmt.Fprintf(b, "- **Profile**: [%s](profiles.md#%s).\n", r.Profile, r.Profile)
	}
	if r.Recipe != "" {
		fmt.Fprintf(b, "- **How to do the same**: [%s](../%s).\n", r.Recipe, r.Recipe)
	}
	for _, code := range sortedKeys(r.Doctor) {
		fmt.Fprintf(b, "- **Declared finding** %s: %s.\n", code, r.Doctor[code])
	}
	if res == nil {
		b.WriteString("\nIt has not run yet.\n")
		return
	}
	fmt.Fprintf(b, "- **Run** on %s: podweir %s, Linux %s, %d processors", res.Date, res.Commit, res.Kernel, res.CPUs)
	if res.Versions != "" {
		fmt.Fprintf(b, "; %s", res.Versions)
	}
	if res.PeakMiB > 0 {
		fmt.Fprintf(b, "; the cluster took at most %d MiB of memory", res.PeakMiB)
	}
	b.WriteString(".\n")
	if res.Lacks != "" {
		fmt.Fprintf(b, "\nIt did not run: the kernel lacks %s.\n", res.Lacks)
		return
	}
	b.WriteString("\n| step | outcome | s | seen |\n| --- | --- | --- | --- |\n")
	for _, s := range res.Steps {
		fmt.Fprintf(b, "| %s | %s | %.1f | %s |\n", s.Name, s.Outcome, s.Seconds, cell(strings.Join(s.Notes, "; ")))
	}
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// cell is a text that fits into a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", "<br>", "<", "&lt;").Replace(strings.TrimSpace(s))
}
