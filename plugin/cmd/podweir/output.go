// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"io"

	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/terms"
)

func (o *options) output() string { return o.v.GetString("output") }

// machine says that a program reads the output.
func (o *options) machine() bool { return show.Machine(o.output()) }

// print writes a value for programs. Its texts name podweir's commands as they are run here.
func (o *options) print(w io.Writer, v any) error { return show.Print(runnableWriter{w}, v) }

// end writes what a command found out, for a program or for people, and returns the error of an exit status.
func (o *options) end(w io.Writer, found any, text string, exit func() (status int, why string)) error {
	if o.machine() {
		w = runnableWriter{w}
	}
	return show.End(w, o.output(), found, text, exit)
}

// runnableWriter names podweir's commands in texts as they are run here; see [terms.Runnable].
// It takes a text in one piece.
type runnableWriter struct{ io.Writer }

func (w runnableWriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(w.Writer, terms.Runnable(string(text), runBy()))
	return len(text), err
}
