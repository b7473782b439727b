// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Format says how a report is written.
type Format struct {
	// Short leaves out what is ok or skipped.
	Short bool
	// Color marks results by colour; for terminals only.
	Color bool
}

// symbols begin a line of the table; the word follows, so that nobody needs to
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
	t.line("\n%s", r.Summary())
	_, err := io.WriteString(w, t.b.String())
	return err
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
		t.line("  %s %s %s", mark, o.Code, o.Title)
		t.part("seen", o.Seen)
		t.part("expected", o.Expected)
		t.part("why", o.Why)
		t.part("fix", o.Fix)
		t.part("touches", o.Touches)
		t.part("page", o.Page)
	case OK, Skip:
		t.line("  %s %s %s: %s", mark, o.Code, o.Title, printable(o.Seen))
		t.part("touches", o.Touches)
	}
}

// part writes one line of a finding; what foreign files brought in is cut to one
// line of printable text.
func (t *table) part(name, text string) {
	if text != "" {
		t.line("              %-9s %s", name, printable(text))
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

// WriteJSON writes a report for programs, in the form that [Schema] names.
func (r *Report) WriteJSON(w io.Writer, format Format) error {
	out := *r
	if format.Short {
		out.Checks = []Outcome{}
		for _, o := range r.Checks {
			if o.Status != OK && o.Status != Skip {
				out.Checks = append(out.Checks, o)
			}
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
