// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/cmd/settings"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
)

func newTop(o *options) *cobra.Command {
	live := &show.Live{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live rates and the heavy flows of each pod",
		Long: "Show what each pod carries of its limit, a row for each direction, until Ctrl-C. A terminal\n" +
			"shows the first rows of the order; into a pipe it writes whole tables.",
		Example: "  podweir top\n  podweir top --filter team-a/ --flows\n  podweir top --count 1 | head",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if live.Table.Interval < 100*time.Millisecond {
				return fmt.Errorf("--interval %v is not accepted, want 100ms or more", live.Table.Interval)
			}
			here, pods := o.detected(cmd.Context()), podsByAddress(cmd.Context(), o)
			live.Out, live.Format = cmd.OutOrStdout(), o.output()
			live.Look = func(ctx context.Context) (*cluster.Nodes, error) {
				rep, err := collect(ctx, o, here)
				if err != nil {
					return nil, err
				}
				seen := rep.View(time.Now())
				seen.NameEnds(pods)
				return inACluster("", seen), nil
			}
			return live.Run(cmd.Context())
		},
	}
	o.readsRuntime(cmd)
	cmd.Flags().DurationVar(&live.Table.Interval, "interval", 2*time.Second, "time between two looks")
	settings.Table(cmd.Flags(), live)
	return cmd
}

// inACluster is a node as a cluster of one.
func inACluster(name string, seen *view.Status) *cluster.Nodes {
	return cluster.New([]cluster.Node{{Name: name, Answer: &cluster.Answer{Status: seen}}}, 0)
}

// podsByAddress are the addresses of the node's pods, as the runtime tells them. Pods that start
// later are not among them, nor are those with the node's network, which have its address.
func podsByAddress(ctx context.Context, o *options) view.PodsByAddress {
	all := make(view.PodsByAddress)
	pods, _ := o.examined().Pods(ctx) // a runtime that does not answer leaves the addresses
	for i := range pods {
		for _, a := range pods[i].Addresses {
			if !pods[i].HostNetwork {
				all.Add(a, pods[i].Name)
			}
		}
	}
	return all
}
