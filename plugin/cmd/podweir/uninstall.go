// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
)

func newUninstall(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove podweir from this node: from the chain and from every pod",
		Long: "Remove podweir from the chain of the primary CNI and the limits from every pod, and leave files, pins, qdiscs\n" +
			"and devices as they were before. If an agent runs, end it first: it would install podweir again.",
		Example: "  podweir uninstall --dry-run\n  podweir uninstall --root /host",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := newManager(o, cmd)
			if err != nil {
				return err
			}
			if o.v.GetBool("dry-run") {
				return planUninstall(cmd.Context(), o, m, cmd.OutOrStdout())
			}
			// First the chain, so that no pod gets a limit that nobody takes off.
			err = m.Remove(cmd.Context())
			if errors.Is(err, delivery.ErrRunning) {
				return err
			}
			detached, detachErr := detachAll(cmd.Context(), o)
			for _, id := range detached {
				fmt.Fprintf(cmd.ErrOrStderr(), "detached %v\n", id)
			}
			return errors.Join(err, unlessMounted(o.paths(), detachErr))
		},
	}
	deliveryFlags(cmd.Flags())
	cmd.Flags().Bool("dry-run", false, "show what would be done and change nothing")
	return cmd
}

// detachAll takes the limits off every pod and removes what podweir keeps on this
// node besides: pins and records of failures. It goes on after an error.
func detachAll(ctx context.Context, o *options) (detached []attach.ID, err error) {
	paths := o.paths()
	node, err := engine.Open(paths)
	if errors.Is(err, engine.ErrNoState) {
		return nil, removeDir("remove", paths.Run)
	}
	if err != nil {
		return nil, err
	}
	defer node.Close()
	ids, all := node.List()
	for _, id := range ids {
		if err := node.Remove(ctx, id); err != nil {
			all = errors.Join(all, fmt.Errorf("detach %v: %w", id, err))
			continue
		}
		detached = append(detached, id)
	}
	_, lostErr := node.RemoveLost(ctx)
	all = errors.Join(all, lostErr)
	if all != nil {
		// The pins that are left tell what is left.
		return detached, all
	}
	return detached, errors.Join(removeDir("remove pins", paths.Pins), removeDir("remove", paths.Run))
}

// removeDir removes a directory of podweir's with all that is in it. First what is
// in it: in a container the directory itself is a mount, or lies in a root that is
// read-only.
func removeDir(op, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err = errors.Join(err, os.Remove(dir)); err != nil {
		return fmt.Errorf("%s in %s: %w", op, dir, err)
	}
	return nil
}

// planUninstall shows what uninstall would do.
func planUninstall(ctx context.Context, o *options, m *delivery.Manager, w io.Writer) error {
	plan := struct {
		Steps  []delivery.Step `json:"steps"`
		Detach []attach.ID     `json:"detach"`
	}{[]delivery.Step{}, []attach.ID{}}
	steps, err := m.PlanRemove(ctx)
	if err != nil {
		return err
	}
	plan.Steps = append(plan.Steps, steps...)
	node, err := o.open()
	switch {
	case errors.Is(err, engine.ErrNoState):
	case err != nil:
		return err
	default:
		defer node.Close()
		ids, err := node.List()
		if err != nil {
			return err
		}
		plan.Detach = append(plan.Detach, ids...)
	}
	for _, dir := range []string{o.paths().Pins, o.paths().Run} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			plan.Steps = append(plan.Steps, delivery.Step{Do: "remove", Path: dir, Why: "podweir is removed"})
		}
	}
	if o.machine() {
		return o.print(w, plan)
	}
	for _, id := range plan.Detach {
		fmt.Fprintf(w, "to do  detach %v\n", id)
	}
	for i := range plan.Steps {
		fmt.Fprintf(w, "to do  %s\n", plan.Steps[i].String())
	}
	if len(plan.Detach)+len(plan.Steps) == 0 {
		fmt.Fprintln(w, "to do  nothing")
	}
	return nil
}
