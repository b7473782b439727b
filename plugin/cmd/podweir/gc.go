// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/engine"
)

func newGC(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what podweir keeps of deleted pods",
		Long: "Remove the pins of every attachment whose interface no longer exists at either end, as after a DEL that was\n" +
			"never called. A pod that still has one end of its interface is not touched. Slots that no attachment uses are\n" +
			"given back. What a release with another layout of the maps left is removed if none of its programs is attached.\n" +
			"Queues and programs of podweir's that have no record, because the pins were lost, are removed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := o.openIfAny()
			if node == nil {
				return err
			}
			defer node.Close()
			ids, err := node.List()
			if err != nil {
				return err
			}
			dry := o.v.GetBool("dry-run")
			var all error
			for _, id := range ids {
				dead, err := node.Gone(id)
				if err == nil && dead && !dry {
					err = node.Remove(cmd.Context(), id)
				}
				if err != nil {
					all = errors.Join(all, fmt.Errorf("%v: %w", id, err))
				} else if dead {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s %v\n", removed(dry), id)
				}
			}
			all = errors.Join(all, removeLost(cmd.Context(), cmd.ErrOrStderr(), node, dry))
			return errors.Join(all, collectSlots(cmd.ErrOrStderr(), node, dry), removeLayouts(cmd.ErrOrStderr(), node, dry))
		},
	}
	cmd.Flags().Bool("dry-run", false, "show what would be removed and change nothing")
	return cmd
}

// removeLost takes off, or shows, what has no record.
func removeLost(ctx context.Context, w io.Writer, node *engine.Node, dry bool) error {
	did, act := "removed", node.RemoveLost
	if dry {
		did, act = "to remove", func(context.Context) ([]engine.Lost, error) { return node.Lost() }
	}
	lost, err := act(ctx)
	for i := range lost {
		fmt.Fprintf(w, "%s from %s, of which there is no record: %s\n", did, lost[i].Name(), strings.Join(lost[i].What, ", "))
	}
	return err
}

// collectSlots gives back what killed processes left in the slab.
func collectSlots(w io.Writer, node *engine.Node, dry bool) error {
	collect, done := node.CollectSlots, "gave back"
	if dry {
		collect, done = node.LeftSlots, "to give back:"
	}
	slots, err := collect()
	if slots > 0 {
		fmt.Fprintf(w, "%s %d slots that no attachment uses\n", done, slots)
	}
	return err
}

// removeLayouts removes what a release with another layout of the maps left.
func removeLayouts(w io.Writer, node *engine.Node, dry bool) error {
	remove := node.RemoveUnusedLayouts
	if dry {
		remove = node.UnusedLayouts
	}
	dirs, err := remove()
	for _, dir := range dirs {
		fmt.Fprintf(w, "%s %s, which another release left\n", removed(dry), dir)
	}
	return err
}

func removed(dry bool) string {
	if dry {
		return "to remove"
	}
	return "removed"
}
