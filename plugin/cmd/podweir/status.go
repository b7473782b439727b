// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/serve"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cmd/show"
	"github.com/podweir/podweir/plugin/examine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
	"github.com/podweir/podweir/plugin/version"
)

func newStatus(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which pods are limited as they should be, and why others are not",
		Long: "Show which pods of this node are limited as they should be. Each pod that is not comes first, with the\n" +
			"cause and what to do; the others are counted, or listed if there are few. -o wide shows every limit: where it\n" +
			"is enforced and why there, and its counters. Exit status 1 if a pod is not limited as it should be or may\n" +
			"be missing, or the agent is not ready.",
		Example: "  podweir status\n  podweir status --broken\n  podweir status --pod default/web\n  podweir status -o wide",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runStatus(cmd, o) },
	}
	o.readsRuntime(cmd)
	cmd.Flags().String("health-address", serve.DefaultHealthAddress, "loopback address on which the agent answers /readyz")
	cmd.Flags().Bool("broken", false, "show only pods that are not limited as they should be")
	cmd.Flags().String("pod", "", "show only this pod, NAMESPACE/NAME, in the wide form")
	return cmd
}

func runStatus(cmd *cobra.Command, o *options) error {
	pod := o.v.GetString("pod")
	if namespace, name, _ := strings.Cut(pod, "/"); pod != "" && (namespace == "" || name == "" || strings.Contains(name, "/")) {
		return fmt.Errorf("--pod %q is not accepted, want NAMESPACE/NAME", pod)
	}
	rep, node, err := looked(cmd.Context(), o)
	if err != nil {
		return err
	}
	if pod != "" {
		rep.Keep(func(name string) bool { return name == pod })
		node.Keep(func(p *view.Pod) bool { return p.Pod == pod })
		if len(node.Pods) == 0 {
			return fmt.Errorf("--pod %q: podweir has no limit for a pod of this name on this node", pod)
		}
	}
	if o.v.GetBool("broken") && o.output() != "table" {
		broken := map[string]bool{}
		for _, p := range node.Broken() {
			broken[p.Pod] = true
		}
		rep.Keep(func(name string) bool { return broken[name] })
	}
	out := cmd.OutOrStdout()
	switch {
	case o.machine():
		err = o.print(out, rep)
	case o.output() == "wide" || pod != "":
		err = printWide(out, rep, node)
	default:
		_, err = io.WriteString(out, node.Summary("this node", o.v.GetBool("broken")))
	}
	if err != nil {
		return err
	}
	if n := len(node.Broken()); n > 0 {
		return fmt.Errorf("%d of %d pods are not limited as they should be", n, len(node.Pods))
	}
	if doubts := node.Doubts(); len(doubts) > 0 {
		return errors.New(doubts[0])
	}
	return nil
}

// profileTimeout is how long a look waits for what it asks the CNI and the runtime.
const profileTimeout = 2 * time.Second

// bypassed tells a report whether packets go past limits beside the node's CNI, as PW402
// knows it, and which of the pods read ahead of a limit in the pod. What is only possible is
// left to the doctor.
func (o *options) bypassed(ctx context.Context, rep *status.Report, here *detect.Node) {
	if p := here.Profile; p != nil && p.Bypass == profiles.Yes {
		rep.Bypass("", p.BypassWhy)
	}
	if !here.Runtimes().GVisor {
		return
	}
	handlers, _ := o.examined().Handlers(ctx) // what does not answer leaves it to the doctor
	for id, handler := range handlers {
		if here.Config.Runs(handler) == detect.GVisor {
			rep.Bypass(id, "gVisor reads what comes to the pod's device ahead of it")
		}
	}
}

// asking is the node as it is asked about its pods.
func (o *options) asking() *examine.Node {
	node := o.examined()
	node.HealthAddress = o.v.GetString("health-address")
	return node
}

// statusInterval is between the two looks of status: for what pods carry now.
const statusInterval = 500 * time.Millisecond

// looked looks twice where people read it and there is something that may be carried.
func looked(ctx context.Context, o *options) (*status.Report, *view.Status, error) {
	asked := o.asking().Asked(ctx)
	look := func() (*status.Report, *view.Status, error) {
		rep, err := collect(ctx, o, asked.Found())
		if err != nil {
			return nil, nil, err
		}
		if err := asked.Add(ctx, rep); err != nil {
			return nil, nil, err
		}
		return rep, rep.View(time.Now()), nil
	}
	rep, node, err := look()
	if err != nil {
		return nil, nil, err
	}
	if o.machine() || len(rep.Attachments)+len(rep.Others) == 0 {
		return rep, node.Runnable(runBy()), nil
	}
	if err := show.Wait(ctx, statusInterval); err != nil {
		return nil, nil, err
	}
	before := node
	if rep, node, err = look(); err != nil {
		return nil, nil, err
	}
	node.Looked(before)
	return rep, node.Runnable(runBy()), nil
}

// collect looks at the node, of which here is known.
func collect(ctx context.Context, o *options, here *detect.Node) (*status.Report, error) {
	node, err := o.openThere()
	if err != nil {
		return nil, err
	}
	defer node.Close()
	rep, err := status.Collect(node)
	if err == nil {
		o.bypassed(ctx, rep, here)
	}
	return rep, err
}

// printWide writes all that is known of each pod, after what is wrong with it.
func printWide(out io.Writer, rep *status.Report, node *view.Status) error {
	w := tabwriter.NewWriter(runnableWriter{out}, 2, 8, 2, ' ', 0)
	broken := node.Broken()
	if len(broken) > 0 || len(node.Pods) != 1 || len(rep.Attachments) == 0 {
		fmt.Fprintln(w, node.Head("this node"))
	}
	for i := range broken {
		p := &broken[i]
		fmt.Fprintf(w, "%s %s: %s\n  cure: %s\n", p.State.Word(), p.Pod, terms.Printable(p.Cause), p.Cure)
	}
	for _, sentence := range node.Doubts() {
		fmt.Fprintln(w, sentence)
	}
	fmt.Fprint(w, node.Less())
	for i := range rep.Attachments {
		printAttachment(w, &rep.Attachments[i], node.Groups)
	}
	return w.Flush()
}

func printAttachment(w io.Writer, a *status.Attachment, groups []terms.Group) {
	fmt.Fprintf(w, "%s  %s in %s", a.Name(), a.Interface.PodName, a.Interface.NetNSPath)
	if now := a.Interface.NowName; now != "" {
		fmt.Fprintf(w, ", now %s", now)
	}
	if a.Set {
		fmt.Fprint(w, "  (limits changed by `podweir set`)")
	}
	fmt.Fprintln(w)
	for i := range a.Directions {
		d := &a.Directions[i]
		printDirection(w, d, view.ShareOf(a.Name(), &d.Limit, groups, "this node"))
	}
	for _, n := range a.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
}

// printDirection has what is known of one direction; share is what it has of the limit of its namespace.
func printDirection(w io.Writer, d *status.Direction, share string) {
	asked := ""
	if d.DecidedBy != "" {
		asked = fmt.Sprintf(" decided by %s", d.DecidedBy)
		if d.Asked > 0 {
			asked = fmt.Sprintf(" in place of %v, decided by %s", d.Asked, d.DecidedBy)
		} else if d.AskedText != "" {
			asked = fmt.Sprintf(" in place of %q, decided by %s", d.AskedText, d.DecidedBy)
		}
	}
	queue := "queue " + d.Queue.String()
	if d.Observed() {
		queue = "observed only"
	}
	fmt.Fprintf(w, "  %s\t%s\tpolicy %s\t%s\tmode %s\ton %s side", d.Direction,
		d.Rate.String()+asked, d.Policy, queue, d.Mode, d.Side)
	if d.HookKind.Is != 0 {
		fmt.Fprintf(w, ", %s %s", d.HookKind, d.Hook)
	}
	fmt.Fprintf(w, "\n  \tburst %v\tdepth %v\twait at most %v", d.Burst, d.DepthBytes,
		time.Duration(d.MaxWaitSeconds*float64(time.Second)).Round(time.Millisecond))
	if d.OffloadBytes != 0 {
		fmt.Fprintf(w, "\tTCP packets up to %v", d.OffloadBytes)
	}
	if d.Pacing != nil {
		fmt.Fprint(w, "\tTCP packets by each flow's pacing")
	}
	fmt.Fprintln(w)
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
	if d.DeviceBytes > 0 {
		fmt.Fprintf(w, "  \tits device carried %v since it was made\n", units.Bytes(d.DeviceBytes))
	}
	if share != "" {
		fmt.Fprintf(w, "  \tnamespace: %s\n", share)
	}
	fmt.Fprintf(w, "  \twaits: %s\n", waits(d))
	if text := reached(d); text != "" && !d.Observed() {
		fmt.Fprintf(w, "  \tat its limit: %s\n", text)
	}
	if !strings.HasPrefix(version.String(), d.Build) {
		fmt.Fprintf(w, "  \tattached by podweir %s, this is %s\n", d.Build, version.String())
	}
	for _, g := range d.Degraded {
		fmt.Fprintf(w, "  \tDEGRADED")
		if !g.Since.IsZero() {
			fmt.Fprintf(w, " since %s", g.Since.Format(time.RFC3339))
		}
		fmt.Fprintf(w, ": %s\n", g.Reason)
	}
	if d.Ahead != "" {
		fmt.Fprintf(w, "  \tnote: %s runs before the redirect. What it takes is not limited; the column PAST counts it\n", d.Ahead)
	}
	for _, n := range d.Notes {
		if !slices.ContainsFunc(d.Degraded, func(g attach.Degradation) bool { return g.Reason == n }) {
			fmt.Fprintf(w, "  \tnote: %s\n", n)
		}
	}
}

// reached says for how much of the last minute a direction was at its limit. Without an
// agent drops alone show that it was, and nothing shows that it was not.
func reached(d *status.Direction) string {
	if d.HeldShare == nil {
		if drops := d.Drops(); drops > 0 {
			return fmt.Sprintf("it was: %d packets dropped since it was attached", drops)
		}
		return ""
	}
	text := fmt.Sprintf("%.0f %% of the last minute", 100**d.HeldShare)
	if !d.AtLimitSince.IsZero() {
		text += ", since " + d.AtLimitSince.Format(time.RFC3339)
	}
	return text
}

// waits says how long the packets of each band waited, or why nobody knows.
func waits(d *status.Direction) string {
	var shown []string
	for _, w := range d.BandWaits() {
		shown = append(shown, w.String())
	}
	switch {
	case len(shown) > 0:
		return strings.Join(shown, "; ")
	case len(d.Waits) > 0:
		return "no packets yet"
	default:
		return "not estimated: that takes the policy strict and the queue tbf"
	}
}
