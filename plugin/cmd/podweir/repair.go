// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
)

// repaired is one interface as repair prints it.
type repaired struct {
	Pod       string `json:"pod,omitempty"`
	Interface string `json:"interface"`
	NetNS     string `json:"netns"`
	// Steps are the differences that were mended, or with --dry-run would be.
	Steps []string `json:"steps"`
	// Degraded is what is wanted and not available now.
	Degraded []string `json:"degraded,omitempty"`
	// Gone says that the pod is gone, and that this is left over.
	Gone  bool   `json:"gone,omitempty"`
	Error string `json:"error,omitempty"`
}

func newRepair(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair [--dry-run] [--container ID | --pod NAMESPACE/NAME]",
		Short: "Repair what was changed on shaped pods",
		Long: "Compare each shaped interface of this node with its recorded limits, and repair what differs: queues, programs,\n" +
			"their order, the size of a queue after a change of the MTU. The record is on the node; no Kubernetes is needed.\n" +
			"Pods do not notice. Exit status 1 if something could not be repaired.",
		Example: "  podweir repair --dry-run\n  podweir repair --pod default/web",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := o.openThere()
			if err != nil {
				return err
			}
			defer node.Close()
			ids, err := selectedOrAll(o, node)
			if err != nil {
				return err
			}
			r := repair{node: node, dry: o.v.GetBool("dry-run"), all: []repaired{}}
			for _, id := range ids {
				r.attachment(cmd.Context(), id)
			}
			if o.v.GetString("container") == "" && o.v.GetString("pod") == "" {
				if err := r.lost(); err != nil {
					return err
				}
			}
			if o.machine() {
				err = o.print(cmd.OutOrStdout(), r.all)
			} else {
				err = r.print(cmd.OutOrStdout())
			}
			if err == nil && r.failed > 0 {
				err = fmt.Errorf("%d of the interfaces above could not be repaired", r.failed)
			}
			return err
		},
	}
	selectFlags(o, cmd)
	cmd.Flags().Bool("dry-run", false, "say what would be done, and do nothing")
	return cmd
}

// selectedOrAll returns the attachments that the flags name; all without flags.
func selectedOrAll(o *options, node *engine.Node) ([]attach.ID, error) {
	if o.v.GetString("container") == "" && o.v.GetString("pod") == "" {
		return node.List()
	}
	return selected(o, node)
}

// repair is one run of the command.
type repair struct {
	node   *engine.Node
	dry    bool
	all    []repaired
	failed int
}

// attachment repairs all interfaces of one attachment.
func (r *repair) attachment(ctx context.Context, id attach.ID) {
	records, err := r.node.Records(id)
	if err != nil {
		r.failed++
		r.all = append(r.all, repaired{Interface: id.IfName, Steps: []string{}, Error: err.Error()})
	}
	if len(records) == 0 {
		return
	}
	first := len(r.all)
	for _, rec := range records {
		line := repaired{Pod: rec.Pod, Interface: rec.Interface.PodName, NetNS: rec.Interface.NetNSPath, Steps: []string{}}
		if line.Pod == "" {
			line.Pod = rec.ID.Network + "/" + rec.ID.ContainerID
		}
		if r.dry {
			r.compare(rec, &line)
		}
		r.all = append(r.all, line)
	}
	if r.dry {
		return
	}
	lines := r.all[first:]
	r.node.Planned = func(i attach.Interface, plan []attach.Action) {
		for n := range lines {
			if lines[n].Interface == i.PodName {
				lines[n].Steps = steps(plan)
			}
		}
	}
	if _, err := r.node.Repair(ctx, id); err != nil {
		for n := range lines {
			r.fault(&lines[n], records[n], err)
		}
	}
	r.stillDegraded(id, lines)
}

// stillDegraded fills in what a repair could not bring back.
func (r *repair) stillDegraded(id attach.ID, lines []repaired) {
	records, _ := r.node.Records(id)
	for _, rec := range records {
		in, err := r.node.Inspect(rec)
		if err != nil {
			continue // repair has said why
		}
		for n := range lines {
			if lines[n].Interface == rec.Interface.PodName {
				lines[n].Degraded = degraded(in)
			}
		}
	}
}

func degraded(in *attach.Inspection) []string {
	var all []string
	for _, d := range in.Degraded {
		all = append(all, fmt.Sprintf("%v: %s", d.Direction, d.Reason))
	}
	return all
}

// lost names what has no record: what it should be is not known here.
func (r *repair) lost() error {
	lost, err := r.node.Lost()
	for i := range lost {
		l := &lost[i]
		r.failed++
		r.all = append(r.all, repaired{
			Pod: "(not known)", Interface: l.Interface.Name(), NetNS: l.Interface.NetNSPath, Steps: []string{},
			Error: "no record of " + strings.Join(l.What, ", ") + "; the pod's next ADD or the agent takes it over, podweir gc removes it",
		})
	}
	return err
}

// compare fills in what would be done for one interface.
func (r *repair) compare(rec *apply.Record, line *repaired) {
	in, err := r.node.Inspect(rec)
	if err != nil {
		r.fault(line, rec, err)
		return
	}
	if in.Unheld != nil {
		r.fault(line, rec, in.Unheld)
	}
	line.Steps, line.Degraded = steps(in.Plan), degraded(in)
}

// fault notes an error. What is gone needs no repair.
func (r *repair) fault(line *repaired, rec *apply.Record, err error) {
	line.Error = err.Error()
	if errors.Is(err, apply.ErrGone) {
		line.Gone, _, line.Error = status.Absent(r.node, rec)
	}
	if line.Gone {
		line.Error = ""
		return
	}
	r.failed++
}

func steps(plan []attach.Action) []string {
	all := make([]string, len(plan))
	for i, a := range plan {
		all[i] = a.String()
	}
	return all
}

func (r *repair) print(w io.Writer) error {
	mended, did := 0, "repaired"
	if r.dry {
		did = "would repair"
	}
	for i := range r.all {
		l := &r.all[i]
		if len(l.Steps)+len(l.Degraded) == 0 && l.Error == "" && !l.Gone {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s  %s in %s\n", l.Pod, l.Interface, l.NetNS); err != nil {
			return err
		}
		switch {
		case l.Gone:
			_, _ = fmt.Fprintln(w, terms.Runnable("  the pod is gone; DEL, GC or `podweir gc` removes the rest", runBy()))
		case l.Error != "":
			_, _ = fmt.Fprintf(w, "  error: %s\n", terms.Runnable(l.Error, runBy()))
		case len(l.Steps) > 0:
			mended++
		}
		for _, s := range l.Steps {
			if _, err := fmt.Fprintf(w, "  %s %s\n", did, s); err != nil {
				return err
			}
		}
		for _, d := range l.Degraded {
			if _, err := fmt.Fprintf(w, "  degraded %s\n", d); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d interfaces looked at, %d with differences, %d errors.\n", len(r.all), mended, r.failed)
	return err
}

func newGC(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what podweir keeps of deleted pods",
		Long: "Remove the pins of every attachment whose interface no longer exists at either end, as after a DEL that was\n" +
			"never called. Another device with the number of one of the ends does not count. A pod that still has one end of\n" +
			"its interface is not touched, and named if the other end is gone. Slots that no attachment uses are given back.\n" +
			"What a release with another layout of the maps left is removed if none of its programs is attached.\n" +
			"Queues and programs of podweir's that have no record, because the pins were lost, are removed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := o.openIfAny()
			if node == nil {
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
				if err := removeGone(cmd, node, id, dry); err != nil {
					all = errors.Join(all, fmt.Errorf("%v: %w", id, err))
				}
			}
			all = errors.Join(all, removeLost(cmd.Context(), cmd.ErrOrStderr(), node, dry))
			return errors.Join(all, collectSlots(cmd.ErrOrStderr(), node, dry), removeLayouts(cmd.ErrOrStderr(), node, dry))
		},
	}
	cmd.Flags().Bool("dry-run", false, "show what would be removed and change nothing")
	return cmd
}

// removeGone removes, or shows, an attachment whose interfaces are gone. Of one that it leaves
// although not all is in order it says why.
func removeGone(cmd *cobra.Command, node *engine.Node, id attach.ID, dry bool) error {
	records, err := node.Records(id)
	if err != nil {
		return err
	}
	gone, running, why := 0, "", ""
	for _, r := range records {
		is, left, err := node.Gone(r)
		switch {
		case err != nil:
			return err
		case is:
			gone++
		case left != "":
			why = left + "; " + terms.Runnable(status.CureLeft(id), runBy())
		default:
			running = r.Interface.PodName
		}
	}
	switch {
	case len(records) == 0:
		why = "it has no record; an ADD is under way or was killed, and the next ADD or DEL of the pod removes it"
	case gone == len(records):
		if !dry {
			err = node.Remove(cmd.Context(), id)
		}
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s %v\n", removed(dry), id)
		}
		return err
	case gone > 0 && why == "":
		why = "its interface " + running + " exists"
	}
	if why != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "left %v: %s\n", id, why)
	}
	return nil
}

// removeLost takes off, or shows, what has no record.
func removeLost(ctx context.Context, w io.Writer, node *engine.Node, dry bool) error {
	did, act := "removed", node.RemoveLost
	if dry {
		did, act = "to remove", func(context.Context) ([]engine.Lost, error) { return node.Lost() }
	}
	lost, err := act(ctx)
	for i := range lost {
		fmt.Fprintf(w, "%s from %s, of which there is no record: %s\n", did, lost[i].Name(), strings.Join(lost[i].What, ", "))
	}
	return err
}

// collectSlots gives back what killed processes left in the slab.
func collectSlots(w io.Writer, node *engine.Node, dry bool) error {
	collect, done := node.CollectSlots, "gave back"
	if dry {
		collect, done = node.LeftSlots, "to give back:"
	}
	slots, err := collect()
	if slots > 0 {
		fmt.Fprintf(w, "%s %d slots that no attachment uses\n", done, slots)
	}
	return err
}

// removeLayouts removes what a release with another layout of the maps left.
func removeLayouts(w io.Writer, node *engine.Node, dry bool) error {
	remove := node.RemoveUnusedLayouts
	if dry {
		remove = node.UnusedLayouts
	}
	dirs, err := remove()
	for _, dir := range dirs {
		fmt.Fprintf(w, "%s %s, which another release left\n", removed(dry), dir)
	}
	return err
}

func removed(dry bool) string {
	if dry {
		return "to remove"
	}
	return "removed"
}
