// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package row

import (
	"fmt"
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
	// Version is [Row.Version] at the time.
	Version string
	// Date is the day, Commit that of the image which ran, Kernel the release.
	Date, Commit, Kernel string
	CPUs                 int
	// Versions are those of the cluster's parts.
	Versions string
	// Lacks is the kernel feature for want of which the row did not run.
	Lacks string `json:",omitempty"`
	Steps []Step
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

// Marks of the tables in docs/reference/support.md.
const (
	begin = "<!-- begin rows -->\n"
	end   = "<!-- end rows -->\n"
)

// Page returns a page with the tables between its marks. A page without marks becomes
// the tables alone.
func (m *Matrix) Page(page string, results []Result, neighbours []Pin) string {
	head, rest, ok := strings.Cut(page, begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return m.tables(results, neighbours)
	}
	return head + begin + m.tables(results, neighbours) + end + tail
}

func (m *Matrix) tables(results []Result, neighbours []Pin) string {
	var b strings.Builder
	b.WriteString(`| row | primary CNI | variant | policy | delivery | result | what stands in for the real thing | run |
| --- | --- | --- | --- | --- | --- | --- | --- |
`)
	standsIn := ""
	for _, r := range m.Rows {
		if r.Needs == "" {
			res, stands := find(results, r.Name), r.StandsIn
			if stands != "" && stands == standsIn {
				stands = "as above"
			}
			standsIn = r.StandsIn
			version := r.Version
			if res != nil && res.Version != "" {
				version = res.Version
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", r.Name, version, r.Variant, r.Policy,
				r.delivery(), res.Verdict(), stands, when(res))
		}
	}
	b.WriteString("\nThese have not run. They need a registry of images or a cloud, and do not count as tested.\n\n" +
		"| row | primary CNI | variant | policy | needs | what covers it meanwhile |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range m.Rows {
		if r.Needs != "" {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.Name, r.Version, r.Variant, r.Policy, r.Needs, r.Elsewhere)
		}
	}
	if neighbours != nil {
		b.WriteString("\nHow old these neighbours are: what tests build, beside the newest release that the module proxy had when `make outdated` ran last.\n\n" + PinTable(neighbours))
	}
	return b.String()
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
	return r.Date + ", " + r.Commit
}
