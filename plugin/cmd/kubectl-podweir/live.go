// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/cmd/settings"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// minInterval is the least time between two looks: an agent gives what it read within
// the last second to further readers.
const minInterval = 2 * time.Second

// lookAgain asks the agents [minInterval] after they were asked before.
func (c *client) lookAgain(ctx context.Context) (*cluster.Nodes, error) {
	if err := show.Wait(ctx, minInterval); err != nil {
		return nil, err
	}
	return c.look(ctx)
}

func newTop(o *options) *cobra.Command {
	l := &show.Live{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live rates and the heavy flows of each pod",
		Long: "Show what each pod of the cluster carries of its limit, a row for each direction, as podweir top does for one\n" +
			"node. Nodes that did not answer are rows of their own. Exit status 2 if one did not at the last look.",
		Example: "  kubectl podweir top\n  kubectl podweir top --filter team-a/ --flows --count 1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.Table.Interval < minInterval {
				return fmt.Errorf("--interval %v is not accepted, want %v or more", l.Table.Interval, minInterval)
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			l.Out, l.Format, l.Look = cmd.OutOrStdout(), o.output, c.look
			l.Table.Where = "the cluster"
			if err := l.Run(cmd.Context()); err != nil {
				return err
			}
			if l.Last == nil {
				return nil // it ended during the first look
			}
			return show.Exit(l.Last.UnknownExit())
		},
	}
	f := cmd.Flags()
	f.DurationVar(&l.Table.Interval, "interval", minInterval, "time between two looks, 2s or more")
	settings.Table(f, l)
	return cmd
}

func newExplain(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "explain NAMESPACE/POD | CODE",
		Short: "Say in a sentence what the limits of a pod do to it now, or explain a code of the doctor",
		Long: "Say in a sentence for each direction what the limits of a pod do to it now, then the numbers. It looks twice,\n" +
			"2 s apart. With a code of the doctor it prints the page of that. Exit status 1 if the pod is not limited as it\n" +
			"should be, 2 if it was not found and a node is unknown.",
		Example: "  kubectl podweir explain default/web-5d8f7c9b6d-x2x4q\n  kubectl podweir explain PW602",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if done, err := show.Explained(cmd.OutOrStdout(), doctor.Explain(args[0], terms.ByKubectl), args[0]); done {
				return err
			}
			return explain(cmd, o, args[0])
		},
	}
}

func explain(cmd *cobra.Command, o *options, pod string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	before, err := c.look(cmd.Context())
	if err != nil {
		return err
	}
	where := before.Find(pod)
	switch len(where) {
	case 0:
		return without(cmd, o, pod, before)
	case 1:
		c.node = where[0]
	default: // one of them was not told that it is gone
		return fmt.Errorf("pod %s is on %s: --node names one of them", pod, view.Names(where))
	}
	now, err := c.lookAgain(cmd.Context())
	if err != nil {
		return err
	}
	said := cluster.Explain(pod, before, now)
	return o.end(cmd, said, said.Text(time.Now()), said.Exit)
}

func without(cmd *cobra.Command, o *options, pod string, seen *cluster.Nodes) error {
	if u := seen.Unlimited(pod); u != nil {
		text := terms.Paragraph("", fmt.Sprintf("%s on %s has no limit from podweir: %s.", u.Pod, u.Node, u.Cause), 0)
		return o.end(cmd, u, text, func() (int, string) {
			if u.LeftToOthers {
				return cluster.ExitOK, ""
			}
			return cluster.ExitBroken, "the pod is not limited as it should be"
		})
	}
	switch n := seen.Unknown(); {
	case n > 0:
		return show.Exit(cluster.ExitUnknown, fmt.Sprintf("no node that answered has a limit for pod %s; %d of %d nodes are unknown", pod, n, seen.Total()))
	case o.node != "":
		return show.Exit(cluster.ExitUnknown, fmt.Sprintf("node %s has no limit for pod %s, and no other node was asked (--node)", o.node, pod))
	}
	return show.Exit(cluster.ExitBroken, fmt.Sprintf("no node has a limit for pod %s: it asks for none, or podweir does not see the pod", pod))
}
