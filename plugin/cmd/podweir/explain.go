// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/status/cluster"
)

// thisNode stands for the node's name: nobody has to tell podweir that.
const thisNode = "this node"

// explainInterval is between the two looks of explain.
const explainInterval = 2 * time.Second

func newExplain(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain NAMESPACE/POD | CODE",
		Short: "Say in a sentence what the limits of a pod do to it now, or explain a code of the doctor",
		Long: "Say in a sentence for each direction what the limits of a pod of this node do to it now, then the numbers. It\n" +
			"looks twice, 2 s apart. With a code of the doctor it prints the page of that. Exit status 1 if the pod is not\n" +
			"limited as it should be, 2 if that is unknown.",
		Example: "  podweir explain default/web\n  podweir explain PW602",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if page := doctor.Explain(args[0], runBy()); page != "" {
				return show.Page(cmd.OutOrStdout(), page)
			}
			if namespace, name, ok := strings.Cut(args[0], "/"); !ok || namespace == "" || name == "" {
				return fmt.Errorf("%q is not accepted, want NAMESPACE/POD or a code of the doctor such as PW602", args[0])
			}
			return runExplain(cmd, o, args[0])
		},
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return o.recorded(cmd, func(r *attach.Record) string { return r.Pod })
	}
	return cmd
}

func runExplain(cmd *cobra.Command, o *options, pod string) error {
	look := func() (*cluster.Nodes, error) {
		rep, err := collect(o)
		if err != nil {
			return nil, err
		}
		return cluster.New([]cluster.Node{{Name: thisNode, Answer: &cluster.Answer{Status: rep.View(time.Now()).Runnable(runBy())}}}, 0), nil
	}
	before, err := look()
	if err != nil {
		return err
	}
	if before.Find(pod) == "" {
		return fmt.Errorf("podweir has no limit for pod %s on this node; podweir status lists the pods that it sees", pod)
	}
	if err := wait(cmd.Context(), explainInterval); err != nil {
		return err
	}
	now, err := look()
	if err != nil {
		return err
	}
	said := cluster.Explain(pod, before, now)
	out := cmd.OutOrStdout()
	if o.machine() {
		err = o.print(out, said)
	} else {
		_, err = io.WriteString(out, said.Text(time.Now()))
	}
	if err != nil {
		return err
	}
	if status, why := said.Exit(); status != cluster.ExitOK {
		return &exitError{status, why}
	}
	return nil
}

// wait lets some time pass.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
