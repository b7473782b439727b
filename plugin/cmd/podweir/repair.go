// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"cmp"
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
	selectFlags(cmd)
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

func (r *repair) attachment(ctx context.Context, id attach.ID) {
	records, err := r.node.Records(id)
	if err != nil {
		r.failed++
		r.all = append(r.all, repaired{Pod: id.Network + "/" + id.ContainerID, Interface: id.IfName, Steps: []string{}, Error: err.Error()})
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
				lines[n].Steps = terms.Texts(plan)
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
	line.Steps, line.Degraded = terms.Texts(in.Plan), degraded(in)
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

func (r *repair) print(out io.Writer) error {
	w, mended := runnableWriter{out}, 0
	for i := range r.all {
		l, did := &r.all[i], "repaired"
		if r.dry {
			did = "would repair"
		} else if l.Error != "" {
			did = "was to repair"
		}
		if len(l.Steps)+len(l.Degraded) == 0 && l.Error == "" && !l.Gone {
			continue
		}
		fmt.Fprintf(w, "%s  %s in %s\n", l.Pod, l.Interface, cmp.Or(l.NetNS, "a network namespace that its record does not tell"))
		switch {
		case l.Gone:
			fmt.Fprintln(w, "  the pod is gone; DEL, GC or `podweir gc` removes the rest")
		case l.Error != "":
			fmt.Fprintf(w, "  error: %s\n", l.Error)
		case len(l.Steps) > 0:
			mended++
		}
		for _, s := range l.Steps {
			fmt.Fprintf(w, "  %s %s\n", did, s)
		}
		for _, d := range l.Degraded {
			fmt.Fprintf(w, "  degraded %s\n", d)
		}
	}
	_, err := fmt.Fprintf(w, "%d interfaces looked at, %d with differences, %d errors.\n", len(r.all), mended, r.failed)
	return err
}
