// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/cluster"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
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
			if done, err := show.Explained(cmd.OutOrStdout(), doctor.Explain(args[0], runBy()), args[0]); done {
				return err
			}
			return runExplain(cmd, o, args[0])
		},
	}
	o.readsRuntime(cmd)
	return cmd
}

// explained is one look for explain: the node as a cluster of one, and where packets of a
// pod are lost by others than podweir.
type explained struct {
	nodes  *cluster.Nodes
	losses []terms.Loss
	// path says what is wrong with the devices on the pod's way, "" if nothing is; unread why not all of losses is known.
	path, unread string
}

// lookAt takes what is known of the node, and the names of pods by their addresses.
func lookAt(ctx context.Context, o *options, pod string, here *detect.Node, pods view.PodsByAddress) (*explained, error) {
	node, err := o.openThere()
	if err != nil {
		return nil, err
	}
	defer node.Close()
	rep, err := status.Collect(node)
	if err != nil {
		return nil, err
	}
	o.bypassed(ctx, rep, here)
	seen := rep.View(time.Now()).Runnable(runBy())
	seen.NameEnds(pods)
	e := &explained{nodes: inACluster(thisNode, seen)}
	var records []*apply.Record
	for i := range rep.Attachments {
		a := &rep.Attachments[i]
		if a.Name() != pod {
			continue
		}
		if r := a.Record(); r != nil {
			records = append(records, r)
		}
		if path, err := node.Path(&a.Interface); err == nil && path != "" {
			e.path = path
		}
	}
	if e.losses, err = node.Losses(records...); err != nil {
		e.unread = err.Error()
	}
	return e, nil
}

func runExplain(cmd *cobra.Command, o *options, pod string) error {
	pods, here := podsByAddress(cmd.Context(), o), o.detected(cmd.Context())
	before, err := lookAt(cmd.Context(), o, pod, here, pods)
	if err != nil {
		return err
	}
	if len(before.nodes.Find(pod)) == 0 {
		return fmt.Errorf("podweir has no limit for pod %s on this node; podweir status lists the pods that it sees", pod)
	}
	if err := show.Wait(cmd.Context(), explainInterval); err != nil {
		return err
	}
	now, err := lookAt(cmd.Context(), o, pod, here, pods)
	if err != nil {
		return err
	}
	said := cluster.Explain(pod, before.nodes, now.nodes)
	return o.end(cmd.OutOrStdout(), said, said.Text(time.Now())+elsewhere(before, now), said.Exit)
}

// maxSilent is how many places that have no counter of their own are listed.
const maxSilent = 5

// elsewhere says where packets are lost that podweir has nothing to do with, and where to
// look if nowhere here.
func elsewhere(before, now *explained) string {
	var b strings.Builder
	b.WriteString("\nelsewhere on this node\n")
	losing := view.Losing(before.losses, now.losses)
	for _, text := range losing {
		b.WriteString(terms.Paragraph("  losing   ", text, 0))
	}
	b.WriteString(terms.Paragraph("  path     ", now.path, 0))
	b.WriteString(terms.Paragraph("  unknown  ", now.unread, 0))
	silent := 0
	for _, l := range now.losses {
		if l.Uncounted {
			if silent++; silent <= maxSilent {
				also := ""
				if l.Past {
					also = " or send them past limits"
				}
				b.WriteString(terms.Paragraph("  silent   ", l.Where+" may drop packets"+also+", and has no counter of its own", 0))
			}
		} else if !slices.ContainsFunc(losing, func(text string) bool { return strings.HasPrefix(text, l.Where+": ") }) {
			b.WriteString(terms.Paragraph("  lost     ", fmt.Sprintf("%s: %d packets in all, none just now", l.Where, l.Packets), 0))
		}
	}
	if silent > maxSilent {
		fmt.Fprintf(&b, "  silent   %d more: nft list ruleset\n", silent-maxSilent)
	}
	if len(losing) == 0 && now.path == "" {
		b.WriteString(terms.Paragraph("  next     ", "nothing is counted as lost here just now: look at what is silent, if there is any, at the other end, at the node's uplink (tc -s qdisc, ethtool -S), and at iptables-legacy -vL", 0))
	}
	return b.String()
}
