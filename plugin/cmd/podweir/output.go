// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/terms"
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
	return []string{"table", "json", "yaml"}
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

// print writes a value for programs, as --output says.
func (o *options) print(w io.Writer, v any) error { return show.Print(w, o.output(), v) }

// completePods completes --pod with the pods that are limited on this node.
func (o *options) completePods(cmd *cobra.Command) {
	complete(cmd, "pod", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return o.recorded(cmd, func(r *apply.Record) string { return r.Pod })
	})
}

// recorded completes with what the records of the attachments have, as far as they can be
// read.
func (o *options) recorded(cmd *cobra.Command, of func(*apply.Record) string) ([]string, cobra.ShellCompDirective) {
	if err := o.v.BindPFlags(cmd.Flags()); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	node, err := o.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer node.Close()
	ids, err := node.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var values []string
	for _, id := range ids {
		records, err := node.Records(id)
		if err != nil {
			continue
		}
		for _, r := range records {
			if v := of(r); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	return values, cobra.ShellCompDirectiveNoFileComp
}

// complete has the shell complete the value of a flag.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag is defined by the caller
	}
}

// completeEnum has the shell complete the value of a flag that is one of a few.
func completeEnum(cmd *cobra.Command, flag string, values ...string) {
	complete(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// noteSet notes at each direction that it is as `podweir set` made it, not as was requested.
func noteSet(node *engine.Node, id attach.ID, states []*attach.Desired) error {
	records, err := node.Records(id)
	if err != nil {
		return err
	}
	for _, r := range records {
		for _, s := range states {
			if r.Asked == nil || r.Interface.PodName != s.Interface.PodName {
				continue
			}
			for _, d := range terms.Directions {
				same := r.Asked.Observe == r.Config.Observe && reflect.DeepEqual(r.Asked.Limit(d), r.Config.Limit(d))
				if state := s.Directions[d]; state != nil && !same {
					state.Params.Notes = append(state.Params.Notes,
						"`podweir set` holds, and the same limits once more do not undo it: `podweir set --clear` does")
				}
			}
		}
	}
	return nil
}
