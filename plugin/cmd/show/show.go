// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package show has what the commands of a node and of a cluster print in the same way:
// values for programs, and the live table.
package show

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// ExitError is an error with an exit status of its own.
type ExitError struct {
	Status int
	Text   string
}

func (e *ExitError) Error() string { return e.Text }

// Exit is an error for an exit status, nil for 0.
func Exit(status int, why string) error {
	if status == 0 {
		return nil
	}
	return &ExitError{status, why}
}

// Color says that what is written may have colours.
func Color(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
}

// Explained writes the page of a code of the doctor, and is done with it. Without a page the
// argument of explain has to be a pod.
func Explained(w io.Writer, page, arg string) (done bool, err error) {
	if page != "" {
		return true, Page(w, page)
	}
	if namespace, name, ok := strings.Cut(arg, "/"); !ok || namespace == "" || name == "" {
		return true, fmt.Errorf("%q is not accepted, want NAMESPACE/POD or a code of the doctor such as PW602", arg)
	}
	return false, nil
}

// Machine says that a program reads output of a format.
func Machine(format string) bool { return format == "json" }

// Print writes a value for programs, as JSON.
func Print(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	_, err = fmt.Fprintln(w, string(b))
	return err
}

// End writes what a command found out, for a program or for people, and returns the error of an exit status.
func End(w io.Writer, format string, found any, text string, exit func() (status int, why string)) error {
	var err error
	if Machine(format) {
		err = Print(w, found)
	} else {
		_, err = io.WriteString(w, text)
	}
	return cmp.Or(err, Exit(exit()))
}

// Page writes a page of text for a terminal.
func Page(w io.Writer, page string) error {
	for line := range strings.Lines(page) {
		if _, err := io.WriteString(w, strings.Join(terms.Wrap(line, terms.Width), "\n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// suggests stands before the commands that cobra takes a word for, one on each line.
const suggests = "\n\nDid you mean this?\n"

// OneLine is an error as a command ends with it, on one line: errors that were joined have a
// line each, and cobra has several for a command that is not there.
func OneLine(err error) string {
	text, similar, found := strings.Cut(err.Error(), suggests)
	if found {
		text += ": did you mean " + strings.Join(strings.Fields(similar), " or ") + "?"
	}
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}

// Live is one run of the live table.
type Live struct {
	Table view.Top
	Out   io.Writer
	// Format of the output; Count is how many tables are written, 0 for no end.
	Format string
	Count  int
	// Look returns what is known now; the first look is only the beginning.
	Look func(ctx context.Context) (*cluster.Nodes, error)
	// Last is what was known at the last look, nil before the first.
	Last *cluster.Nodes

	// screen is the terminal, nil where the output is not one.
	screen *os.File
}

// Run looks and shows until the context ends, which is no error, or all tables are written.
func (l *Live) Run(ctx context.Context) error {
	if l.Count < 0 {
		return fmt.Errorf("--count %d is not accepted, want a number of tables, or 0 for no end", l.Count)
	}
	defer l.open()()
	tick := time.NewTicker(l.Table.Interval)
	defer tick.Stop()
	for shown := 0; ; {
		now, err := l.Look(ctx)
		if ctx.Err() != nil {
			return nil // Ctrl-C is how it ends: the look that was under way failed for that
		}
		if err != nil {
			return err
		}
		before := l.Last
		if l.Last = now; before != nil {
			rates := cluster.Rates(before, now)
			l.Table.Observe(rates, time.Now())
			if err := l.draw(rates); err != nil {
				return err
			}
			if shown++; shown == l.Count {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Wait waits, unless the context ends before.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// draw shows the table, or what a program reads of it.
func (l *Live) draw(rates []view.PodRate) error {
	switch {
	case Machine(l.Format):
		return Print(l.Out, rates)
	case l.screen == nil:
		_, err := io.WriteString(l.Out, l.Table.Plain())
		return err
	}
	width, height, err := term.GetSize(int(l.screen.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = terms.Width, 24
	}
	var b bytes.Buffer
	b.WriteString("\x1b[H") // home; each line clears its rest, the end all below
	for i, line := range l.Table.Screen(width, height) {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err = l.screen.Write(b.Bytes())
	return err
}

// open gives the table a screen of its own, if the output is a terminal. The function that it
// returns gives the former screen back.
func (l *Live) open() (restore func()) {
	out, ok := l.Out.(*os.File)
	if !ok || Machine(l.Format) || !term.IsTerminal(int(out.Fd())) {
		return func() {}
	}
	l.screen = out
	_, _ = out.WriteString("\x1b[?1049h\x1b[?25l\x1b[H\x1b[J") // other screen, no cursor
	return func() { _, _ = out.WriteString("\x1b[?25h\x1b[?1049l") }
}
