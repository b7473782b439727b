// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/units"
)

func newStatus(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Shows the limits, the mode, the policy and the counters of each pod",
		Long: "Shows every shaped interface of this node: its limits, where it is shaped and why there, its\n" +
			"counters, and every difference to what it should be. Exit status 1 if a pod is not shaped as it should be.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rep, err := collect(o)
			if err != nil {
				return err
			}
			if o.json() {
				err = printJSON(cmd.OutOrStdout(), rep)
			} else {
				err = printStatus(cmd.OutOrStdout(), rep)
			}
			if err != nil {
				return err
			}
			if n := rep.Faults(); n > 0 {
				return fmt.Errorf("%d of the interfaces above are not shaped as they should be", n)
			}
			return nil
		},
	}
}

func collect(o *options) (*status.Report, error) {
	node, err := o.open()
	if err != nil {
		return nil, err
	}
	defer node.Close()
	return status.Collect(node)
}

func printStatus(out io.Writer, rep *status.Report) error {
	w := tabwriter.NewWriter(out, 2, 8, 2, ' ', 0)
	if len(rep.Attachments) == 0 && len(rep.Failures) == 0 {
		fmt.Fprintln(w, "No pod of this node has a bandwidth limit of podweir's.")
	}
	for i := range rep.Attachments {
		printAttachment(w, &rep.Attachments[i])
	}
	for _, f := range rep.Failures {
		fmt.Fprintf(w, "UNSHAPED %s (%s/%s) since %s: %s\n", f.ID.ContainerID, f.ID.Network, f.ID.IfName,
			f.Time.Format(time.RFC3339), f.Error)
	}
	return w.Flush()
}

func printAttachment(w io.Writer, a *status.Attachment) {
	fmt.Fprintf(w, "%s  %s in %s", podName(a), a.Interface.PodName, a.Interface.NetNSPath)
	if a.Set {
		fmt.Fprint(w, "  (limits changed by `podweir set`)")
	}
	fmt.Fprintln(w)
	if a.Error != "" {
		fmt.Fprintf(w, "  error: %s\n", a.Error)
	}
	for i := range a.Directions {
		printDirection(w, &a.Directions[i])
	}
	for _, n := range a.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
	for _, d := range a.Drift {
		fmt.Fprintf(w, "  DIFFERS %s\n", d)
	}
}

func podName(a *status.Attachment) string {
	if a.Pod != "" {
		return a.Pod
	}
	return a.ID.Network + "/" + a.ID.ContainerID
}

func printDirection(w io.Writer, d *status.Direction) {
	fmt.Fprintf(w, "  %s\t%v\tpolicy %s\tqueue %s\tmode %s\ton %s side", d.Direction,
		units.BitRate(d.RateBitsPerSecond), d.Policy, d.Queue, d.Mode, d.Side)
	if d.HookKind != "" {
		fmt.Fprintf(w, ", %s %s", d.HookKind, d.Hook)
	}
	fmt.Fprintf(w, "\n  \tburst %v\tdepth %v\twait at most %v\n", units.Bytes(d.BurstBytes), units.Bytes(d.DepthBytes),
		time.Duration(d.MaxWaitSeconds*float64(time.Second)).Round(time.Millisecond))
	var shown []string
	for _, c := range d.Counters {
		if c.Packets > 0 {
			shown = append(shown, fmt.Sprintf("%s %d (%v)", c.Disposition, c.Packets, units.Bytes(c.Bytes)))
		}
	}
	if q := d.Qdisc; q != nil {
		shown = append(shown, fmt.Sprintf("sent %d (%v), waiting %v, queue drops %d", q.Packets,
			units.Bytes(q.Bytes), units.Bytes(q.BacklogBytes), q.Drops))
	}
	if len(shown) > 0 {
		fmt.Fprintf(w, "  \tpackets: %s\n", strings.Join(shown, ", "))
	}
	for _, n := range d.Notes {
		fmt.Fprintf(w, "  \tnote: %s\n", n)
	}
}
