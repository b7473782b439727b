// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
)

func newGC(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what podweir keeps of deleted pods",
		Long: "Remove the pins of every attachment whose interface no longer exists at either end, as after a DEL that was\n" +
			"never called. Another device with the number of one of the ends does not count. A pod whose network namespace or\n" +
			"one end of the interface still exists is not touched, and named if something is missing. Slots that no attachment uses are given back.\n" +
			"What a release with another layout of the maps left is removed if none of its programs is attached.\n" +
			"Queues and programs of podweir's that have no record, because the pins were lost, are removed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := o.openThere()
			if errors.Is(err, engine.ErrNoState) && !o.pinsNamed {
				fmt.Fprintf(cmd.ErrOrStderr(), "looked at nothing: %v: what podweir may keep of pods is out of sight\n", err)
				return nil
			}
			if err != nil {
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
				if err := removeGone(cmd, node, id, dry); err != nil {
					all = errors.Join(all, fmt.Errorf("%v: %w", id, err))
				}
			}
			all = errors.Join(all, removeFailures(cmd.ErrOrStderr(), node, dry))
			all = errors.Join(all, removeLost(cmd.Context(), cmd.ErrOrStderr(), node, dry))
			return errors.Join(all, collectSlots(cmd.ErrOrStderr(), node, dry), removeLayouts(cmd.ErrOrStderr(), node, dry))
		},
	}
	cmd.Flags().Bool("dry-run", false, "show what would be removed and change nothing")
	return cmd
}

// removeGone removes, or shows, an attachment whose interfaces are gone. Of one that it leaves
// although not all is in order it says why.
func removeGone(cmd *cobra.Command, node *engine.Node, id attach.ID, dry bool) error {
	records, err := node.Records(id)
	if err != nil {
		return err
	}
	gone, running, why := 0, "", ""
	for _, r := range records {
		is, left, err := node.Gone(r)
		switch {
		case err != nil:
			return err
		case is:
			gone++
		case left != "":
			why = left + "; " + terms.Runnable(status.CureLeft(id), runBy())
		default:
			running = r.Interface.PodName
		}
	}
	switch {
	case len(records) == 0:
		why = "it has no record; an ADD is under way or was killed, and the next ADD or DEL of the pod removes it"
	case gone == len(records):
		if dry {
			records = nil
		} else if err = node.Remove(cmd.Context(), id); err == nil {
			records, err = node.Records(id)
		}
		if err != nil {
			return err
		}
		if len(records) == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s %v\n", removed(dry), id)
			return nil
		}
		why = "its programs limit the pod until `podweir repair`, or an agent, completes the attachment that has the interface by now"
	case gone > 0 && why == "":
		why = "its interface " + running + " exists"
	}
	if why != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "left %v: %s\n", id, why)
	}
	return nil
}

// removeFailures removes, or shows, what was recorded of pods that could not be limited and have ended.
func removeFailures(w io.Writer, node *engine.Node, dry bool) error {
	failures, err := node.Paths.Mail().Failures()
	for i := range failures {
		f := &failures[i]
		if !f.Ended() {
			continue
		}
		if !dry {
			node.Paths.Mail().ClearFailure(f.ID)
		}
		fmt.Fprintf(w, "%s the record of why %s had no limit\n", removed(dry), cmp.Or(f.Pod, f.ID.String()))
	}
	return err
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
