// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/shaping"
)

func newGC(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Removes what podweir keeps of pods that are gone",
		Long: "Removes the pins of every attachment whose interface is gone at both ends, as after a DEL that was\n" +
			"never called. A pod of which an end is left is not touched.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := o.open()
			if errors.Is(err, cni.ErrNoState) {
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
				dead, err := gone(node, id)
				if err == nil && dead && !dry {
					err = node.Engine.Remove(cmd.Context(), id)
				}
				if err != nil {
					all = errors.Join(all, fmt.Errorf("%v: %w", id, err))
				} else if dead {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s %v\n", map[bool]string{true: "to remove", false: "removed"}[dry], id)
				}
			}
			return all
		},
	}
	cmd.Flags().Bool("dry-run", false, "show what would be removed and change nothing")
	return cmd
}

// gone says that no interface of an attachment has an end left. An attachment
// without a record is one that is being made, or what a killed ADD left behind:
// the next ADD or DEL of the pod removes it.
func gone(node *cni.Node, id attach.ID) (bool, error) {
	records, err := node.Engine.Store.Records(id)
	if err != nil || len(records) == 0 {
		return false, err
	}
	for _, r := range records {
		seen, err := node.Engine.Kernel.Observe(r)
		if err != nil {
			return false, err
		}
		if seen.Devices[shaping.SidePod] != nil || seen.Devices[shaping.SideHost] != nil {
			return false, nil
		}
	}
	return true, nil
}
