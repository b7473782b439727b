// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/status/cluster"
)

func newPlan(o *options) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what would change for which pods if observed limits were enforced",
		Long: "Show what would change for which pods if the limits that are observed only (enforce: observe) were enforced:\n" +
			"which pods would be limited and to what, which would lose packets or wait now, by the counters of two looks that\n" +
			"are 2 s apart, and which requests are not met as written. It changes nothing. Exit status 2 if a node is unknown.",
		Example: "  kubectl podweir plan\n  kubectl podweir plan --pod-namespace team-a -o wide\n  kubectl podweir plan --node n7 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.Contains(namespace, "/") {
				return fmt.Errorf("--pod-namespace %q is not accepted, want the name of a namespace", namespace)
			}
			return plan(cmd, o, namespace)
		},
	}
	cmd.Flags().StringVar(&namespace, "pod-namespace", "", "plan only for the pods of this namespace; all if empty")
	_ = cmd.RegisterFlagCompletionFunc("pod-namespace", o.complete(func(ctx context.Context, c *client) ([]string, error) {
		names, err := limitedPods(ctx, c)
		for i, name := range names {
			names[i], _, _ = strings.Cut(name, "/")
		}
		slices.Sort(names)
		return slices.Compact(names), err
	}))
	return cmd
}

func plan(cmd *cobra.Command, o *options, namespace string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	before, err := c.look(cmd.Context())
	if err != nil {
		return err
	}
	now, err := c.lookAgain(cmd.Context())
	if err != nil {
		return err
	}
	p := cluster.MakePlan(before, now, namespace)
	if err := o.print(cmd, p, func() string { return p.Text(o.output == "wide") }); err != nil {
		return err
	}
	return exit(p.Exit())
}
