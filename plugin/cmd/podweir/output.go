// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/cmd/show"
)

// formatsKey is the annotation of a command that accepts other formats than most do.
const formatsKey = "formats"

// formats says which values of --output a command accepts.
func (o *options) formats(cmd *cobra.Command, all ...string) {
	cmd.Annotations = map[string]string{formatsKey: strings.Join(all, " ")}
}

// formatsOf are the values of --output that a command accepts.
func formatsOf(cmd *cobra.Command) []string {
	if text := cmd.Annotations[formatsKey]; text != "" {
		return strings.Fields(text)
	}
	return []string{"table", "json"}
}

func (o *options) checkOutput(cmd *cobra.Command) error {
	if all := formatsOf(cmd); !slices.Contains(all, o.output()) {
		return fmt.Errorf("--output %q is not accepted by %s, want %s or %s", o.output(), cmd.CommandPath(),
			strings.Join(all[:len(all)-1], ", "), all[len(all)-1])
	}
	return nil
}

func (o *options) output() string { return o.v.GetString("output") }

// machine says that a program reads the output.
func (o *options) machine() bool { return show.Machine(o.output()) }

// print writes a value for programs.
func (o *options) print(w io.Writer, v any) error { return show.Print(w, v) }
