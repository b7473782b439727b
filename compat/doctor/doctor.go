// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package doctor checks whether podweir can work on a node, is wired in, and
// works beside everything else there.
//
// A check reads facts and answers with what was seen, what was expected and the
// command that mends it. Running, rendering and documenting are separate: what a
// check is called and matters for stands on its page under docs/reference/doctor,
// and nowhere else. Nothing here changes the node.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

// Status is the result of a check.
type Status string

// The results. Unknown means that it could not be found out, which is not ok.
const (
	OK      Status = "ok"
	Warn    Status = "warn"
	Fail    Status = "fail"
	Skip    Status = "skip"
	Unknown Status = "unknown"
)

// Category groups checks.
type Category string

// The categories, in the order of the report.
const (
	CategoryNode     Category = "node"
	CategoryCNI      Category = "cni"
	CategoryInstall  Category = "install"
	CategoryDatapath Category = "datapath"
)

var categories = []Category{CategoryNode, CategoryCNI, CategoryInstall, CategoryDatapath}

// Check is one thing that is looked at.
type Check struct {
	// Code is stable; a code that is given up is never used again.
	Code     string
	Title    string
	Category Category
	// Severity is what it means that the check does not hold. Fail: pods are not shaped, or another component's policy or
	// networking is in danger. Warn: something works less well than it could, or may break later.
	Severity Status
	// Needs are codes of checks without whose ok or warn this one says nothing.
	Needs []string
	// Family restricts the check to nodes with this family of CNI in force or
	// running.
	Family string
	// Why says in one clause why it matters.
	Why string
	// Page is all of it in Markdown: what is looked at, why, what to do, and sources.
	Page string

	run func(*Facts) Outcome
}

// of says which pods or files a finding is about.
func (f Outcome) of(about []string) Outcome {
	f.about = about
	return f
}

// Outcome is the answer of one check, as it is reported.
type Outcome struct {
	Code     string   `json:"code"`
	Title    string   `json:"title"`
	Category Category `json:"category"`
	Status   Status   `json:"status"`
	// Seen is what is there, Expected what should be. Expected is empty for ok.
	Seen     string `json:"seen,omitempty"`
	Expected string `json:"expected,omitempty"`
	Why      string `json:"why,omitempty"`
	// Fix is a command, or a sentence where there is none.
	Fix string `json:"fix,omitempty"`
	// Evidence names files, devices and programs.
	Evidence []string `json:"evidence,omitempty"`
	// Also are other checks that the same problem breaks.
	Also []Also `json:"also,omitempty"`
	Page string `json:"page"`

	// about are the pods that it is about, as namespace/name, or the files in the
	// directory of conflists.
	about []string
}

// Schema is the version of the JSON report. Fields are added under the same
// version; one that changes or goes needs the next.
const Schema = "podweir.io/doctor/v1"

// Report is the whole answer.
type Report struct {
	Schema   string         `json:"schema"`
	Version  string         `json:"version"`
	Kernel   string         `json:"kernel"`
	Runtime  string         `json:"runtime"`
	Profile  string         `json:"profile"`
	Assumed  bool           `json:"profileAssumed,omitempty"`
	Why      string         `json:"profileWhy,omitempty"`
	Delivery string         `json:"delivery"`
	Checks   []Outcome      `json:"checks"`
	Count    map[Status]int `json:"count"`
}

func holds(seen string, evidence ...string) Outcome {
	return Outcome{Status: OK, Seen: seen, Evidence: evidence}
}

// breaks is a finding whose status is the check's severity.
func breaks(seen, expected, fix string, evidence ...string) Outcome {
	return Outcome{Seen: seen, Expected: expected, Fix: fix, Evidence: evidence}
}

// fails is worse than the severity of its check.
func fails(seen, expected, fix string, evidence ...string) Outcome {
	return Outcome{Status: Fail, Seen: seen, Expected: expected, Fix: fix, Evidence: evidence}
}

func warns(seen, expected, fix string, evidence ...string) Outcome {
	return Outcome{Status: Warn, Seen: seen, Expected: expected, Fix: fix, Evidence: evidence}
}

func unknown(seen string) Outcome { return Outcome{Status: Unknown, Seen: seen} }

func skip(why string) Outcome { return Outcome{Status: Skip, Seen: why} }

// Run runs every check. One root cause is reported once: checks that need one
// that does not hold are skipped, and so are those that show the same problem.
func Run(f *Facts) *Report {
	rep := &Report{
		Schema: Schema, Version: f.Version, Kernel: f.Node.Kernel.Release, Runtime: f.Node.Runtime.String(),
		Profile: f.Profile.Name, Assumed: f.Node.Assumed, Why: f.Node.Why, Delivery: string(f.Choice.Delivery), Count: map[Status]int{},
	}
	rep.Checks = outcomes(f)
	join(rep.Checks)
	for i := range rep.Checks {
		rep.Count[rep.Checks[i].Status]++
	}
	slices.SortStableFunc(rep.Checks, Compare)
	return rep
}

// Compare compares findings by their places in a report.
func Compare(a, b Outcome) int {
	return cmp.Or(last(a)-last(b), slices.Index(categories, a.Category)-slices.Index(categories, b.Category), cmp.Compare(a.Code, b.Code))
}

// last is 1 for what comes behind everything else.
func last(o Outcome) int {
	if sights[o.Code] {
		return 1
	}
	return 0
}

// outcomes runs every check. A test has each behind those it needs.
func outcomes(f *Facts) []Outcome {
	var out []Outcome
	status := map[string]Status{}
	for _, c := range Checks() {
		o := c.outcome(f, status)
		status[c.Code] = o.Status
		out = append(out, o)
	}
	return out
}

func (c *Check) outcome(f *Facts, status map[string]Status) Outcome {
	o := c.find(f, status)
	o.Code, o.Title, o.Category, o.Page = c.Code, c.Title, c.Category, Page(c.Code)
	o.Seen, o.Expected, o.Fix = terms.Runnable(o.Seen, f.Run), terms.Runnable(o.Expected, f.Run), terms.Runnable(o.Fix, f.Run)
	if o.Status = cmp.Or(o.Status, c.Severity); o.Status == Fail || o.Status == Warn {
		o.Why = c.Why
	}
	return o
}

// find runs the check. One that panics must not stop the others: then they are
// needed most.
func (c *Check) find(f *Facts, status map[string]Status) (found Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			found = unknown(fmt.Sprintf("the check itself broke, please report it: %v", cause))
		}
	}()
	for _, code := range c.Needs {
		if s := status[code]; s != OK && s != Warn {
			return skip("needs " + code)
		}
	}
	if c.Family != "" && f.Profile.Family != c.Family && !slices.Contains(f.Node.Running, c.Family) {
		return skip("no " + c.Family + " on this node")
	}
	return c.run(f)
}

// The exit statuses of the command.
const (
	ExitOK      = 0
	ExitFail    = 1
	ExitUnknown = 2
)

// Exit is the exit status for a report: 1 if a check failed, else 2 if one could
// not be answered, else 0.
func (r *Report) Exit() int {
	switch {
	case r.Count[Fail] > 0:
		return ExitFail
	case r.Count[Unknown] > 0:
		return ExitUnknown
	default:
		return ExitOK
	}
}

// Summary is one line: how many checks had which result.
func (r *Report) Summary() string {
	var parts []string
	for _, s := range []Status{Fail, Warn, Unknown, OK, Skip} {
		if n := r.Count[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}

// Format says how a report is written.
type Format struct {
	// Short leaves out what is ok or skipped, and counts it.
	Short bool
	// Color marks results by colour; for terminals only.
	Color bool
	// Explain is the command that explains a code; podweir explain if empty.
	Explain string
}

// symbols begin a line of the table; the word follows, so that no one needs to
// know them or to see colours.
var symbols = map[Status]string{OK: "✓", Warn: "!", Fail: "✗", Skip: "-", Unknown: "?"}

// colors are the SGR parameters of ECMA-48: green, yellow, red, magenta.
var colors = map[Status]string{OK: "32", Warn: "33", Fail: "31", Unknown: "35"}

// Table is a report for people.
func (r *Report) Table(format Format) string {
	t := &table{format: format}
	t.line("podweir %s on Linux %s, %s", r.Version, r.Kernel, r.Runtime)
	profile := r.Profile
	if r.Assumed {
		profile += " (assumed)"
	}
	t.line("profile %s, delivery %s", profile, r.Delivery)
	last := Category("")
	same := map[string][]string{} // the checks that have no answer for a reason
	for _, o := range r.Checks {
		if o.Status == Unknown {
			same[o.Seen] = append(same[o.Seen], o.Code)
		}
	}
	for _, o := range r.Checks {
		if format.Short && (o.Status == OK || o.Status == Skip) || o.Status == Unknown && same[o.Seen][0] != o.Code {
			continue
		}
		if o.Category != last {
			t.line("\n%s", o.Category)
			last = o.Category
		}
		t.outcome(&o)
		if codes := same[o.Seen]; o.Status == Unknown && len(codes) > 1 {
			t.part("also", "for the same reason unknown: "+strings.Join(codes[1:], ", "))
		}
	}
	if format.Short {
		t.line("\n%s", r.rest(last == "", cmp.Or(format.Explain, "podweir explain")))
	} else {
		t.line("\n%s", r.Summary())
	}
	return t.b.String()
}

// rest is one line about the checks that the short form leaves out.
func (r *Report) rest(all bool, explain string) string {
	text := fmt.Sprintf("%d checks passed, %d skipped; -v lists them.", r.Count[OK], r.Count[Skip])
	if all {
		return "No problem found. " + text
	}
	return explain + " CODE tells more about a problem.\n" + text
}

type table struct {
	b      strings.Builder
	format Format
}

func (t *table) line(text string, args ...any) { fmt.Fprintf(&t.b, text+"\n", args...) }

func (t *table) outcome(o *Outcome) {
	mark := fmt.Sprintf("%s %-7s", symbols[o.Status], o.Status)
	first := o.Title
	if o.Status == OK || o.Status == Skip {
		first += ": " + o.Seen
	}
	text := terms.Paragraph(mark+" "+o.Code+" ", first, 0)
	if c := colors[o.Status]; t.format.Color && c != "" {
		text = "\x1b[" + c + "m" + mark + "\x1b[0m" + strings.TrimPrefix(text, mark)
	}
	t.b.WriteString(text)
	if o.Status == OK || o.Status == Skip {
		return
	}
	t.part("seen", o.Seen)
	for _, a := range o.Also {
		t.part("also", a.Code+": "+a.Seen)
	}
	t.part("expected", o.Expected)
	t.part("why", o.Why)
	t.part("fix", o.Fix)
}

// part writes one part of a finding, nothing if it has no text.
func (t *table) part(name, text string) {
	t.b.WriteString(terms.Paragraph(fmt.Sprintf("  %-8s ", name), text, 0))
}
