// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

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

// WriteTable writes a report for people.
func (r *Report) WriteTable(w io.Writer, format Format) error {
	t := &table{format: format}
	t.line("podweir %s on Linux %s, %s", r.Version, r.Kernel, r.Runtime)
	profile := r.Profile
	if r.Assumed {
		profile += " (assumed)"
	}
	t.line("profile %s, delivery %s", profile, r.Delivery)
	last := Category("")
	for _, o := range r.Checks {
		if format.Short && (o.Status == OK || o.Status == Skip) {
			continue
		}
		if o.Category != last {
			t.line("\n%s", o.Category)
			last = o.Category
		}
		t.outcome(&o)
	}
	if format.Short {
		t.line("\n%s", r.rest(last == "", cmp.Or(format.Explain, "podweir explain")))
	} else {
		t.line("\n%s", r.Summary())
	}
	_, err := io.WriteString(w, t.b.String())
	return err
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
	if c := colors[o.Status]; t.format.Color && c != "" {
		mark = "\x1b[" + c + "m" + mark + "\x1b[0m"
	}
	switch o.Status {
	case Fail, Warn, Unknown:
		t.wrapped(fmt.Sprintf("%s %s ", mark, o.Code), len("✗ unknown PW000 ")-2, o.Title)
		t.part("seen", o.Seen)
		for _, a := range o.Also {
			t.part("also", a.Code+": "+a.Seen)
		}
		t.part("expected", o.Expected)
		t.part("why", o.Why)
		t.part("fix", o.Fix)
		t.part("touches", o.Touches)
	case OK, Skip:
		t.wrapped(fmt.Sprintf("%s %s ", mark, o.Code), len("✗ unknown PW000 ")-2, o.Title+": "+o.Seen)
		t.part("touches", o.Touches)
	}
}

// width of a terminal, in columns.
const width = 80

// wrapped writes text behind a label of some columns, broken between words; every further
// line is indented as far.
func (t *table) wrapped(label string, columns int, text string) {
	line, at := label, columns
	for i, word := range strings.Fields(printable(text)) {
		n := utf8.RuneCountInString(word)
		if i > 0 && at+1+n > width {
			t.line("%s", line)
			line, at = strings.Repeat(" ", columns), columns
		} else if i > 0 {
			line, at = line+" ", at+1
		}
		line, at = line+word, at+n
	}
	t.line("%s", line)
}

// part writes one part of a finding; what foreign files brought in is cut to
// printable text.
func (t *table) part(name, text string) {
	if text != "" {
		label := fmt.Sprintf("  %-8s ", name)
		t.wrapped(label, len(label), text)
	}
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
