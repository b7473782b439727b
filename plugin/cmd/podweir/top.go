// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/plugin/cmd/settings"
	"github.com/podweir/podweir/plugin/cmd/show"
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
			live.Out, live.Format, live.Look = cmd.OutOrStdout(), o.output(), looks(o, o.detected(cmd.Context()), podsByAddress(cmd.Context(), o))
			return live.Run(cmd.Context())
		},
	}
	o.readsRuntime(cmd)
	cmd.Flags().DurationVar(&live.Table.Interval, "interval", 2*time.Second, "time between two looks")
	settings.Table(cmd.Flags(), live)
	return cmd
}

// looks returns a function that looks at the node and returns the rates since it was
// called last. pods are the names of pods by their addresses, and here is what is known of the node.
func looks(o *options, here *detect.Node, pods view.PodsByAddress) func(context.Context) ([]view.PodRate, time.Time, error) {
	var before *view.Status
	return func(ctx context.Context) ([]view.PodRate, time.Time, error) {
		rep, err := collect(ctx, o, here)
		if err != nil {
			return nil, time.Time{}, err
		}
		now := rep.View(time.Now())
		now.NameEnds(pods)
		if before == nil {
			before = now
		}
		rates := view.Rates(before, now)
		before = now
		return rates, now.Time, nil
	}
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
