// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/cni"
)

// repaired is one interface as repair prints it.
type repaired struct {
	Pod       string `json:"pod,omitempty"`
	Interface string `json:"interface"`
	NetNS     string `json:"netns"`
	// Steps are the differences that were mended, or with --dry-run would be.
	Steps []string `json:"steps"`
	// Gone says that the pod is gone, and that this is left over.
	Gone  bool   `json:"gone,omitempty"`
	Error string `json:"error,omitempty"`
}

func newRepair(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair [--dry-run] [--container ID | --pod NAMESPACE/NAME]",
		Short: "Puts right what was changed on shaped pods",
		Long: "Compares each shaped interface of this node with what it was given, and puts right what differs: queues,\n" +
			"programs, their order, the size of a queue after a change of the MTU. It goes by what is pinned on the node and\n" +
			"needs no Kubernetes. Pods do not notice. Exit status 1 if something could not be put right.",
		Example: "  podweir repair --dry-run\n  podweir repair --pod default/web",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := o.open()
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
			if o.json() {
				err = printJSON(cmd.OutOrStdout(), r.all)
			} else {
				err = r.print(cmd.OutOrStdout())
			}
			if err == nil && r.failed > 0 {
				err = fmt.Errorf("%d of the interfaces above could not be repaired", r.failed)
			}
			return err
		},
	}
	selectFlags(cmd.Flags())
	cmd.Flags().Bool("dry-run", false, "say what would be done, and do nothing")
	return cmd
}

// selectedOrAll returns the attachments that the flags name; all without flags.
func selectedOrAll(o *options, node *cni.Node) ([]attach.ID, error) {
	if o.v.GetString("container") == "" && o.v.GetString("pod") == "" {
		return node.List()
	}
	return selected(o, node)
}

// repair is one run of the command.
type repair struct {
	node   *cni.Node
	dry    bool
	all    []repaired
	failed int
}

// attachment repairs all interfaces of one attachment.
func (r *repair) attachment(ctx context.Context, id attach.ID) {
	records, err := r.node.Engine.Store.Records(id)
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
	r.node.Engine.Planned = func(i attach.Interface, plan []attach.Action) {
		for n := range lines {
			if lines[n].Interface == i.PodName {
				lines[n].Steps = steps(plan)
			}
		}
	}
	if _, err := r.node.Engine.Repair(ctx, id); err != nil {
		for n := range lines {
			r.fault(&lines[n], err)
		}
	}
}

// compare fills in what would be done for one interface.
func (r *repair) compare(rec *attach.Record, line *repaired) {
	iface, err := r.node.Engine.Refind(rec)
	if err != nil {
		r.fault(line, err)
		return
	}
	_, plan, err := r.node.Engine.Drift(&rec.Config, iface, rec)
	if err != nil {
		r.fault(line, err)
		return
	}
	line.Steps = steps(plan)
}

// fault notes an error. What is gone needs no repair.
func (r *repair) fault(line *repaired, err error) {
	if errors.Is(err, attach.ErrGone) {
		line.Gone = true
		return
	}
	line.Error = err.Error()
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
		if len(l.Steps) == 0 && l.Error == "" && !l.Gone {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s  %s in %s\n", l.Pod, l.Interface, l.NetNS); err != nil {
			return err
		}
		switch {
		case l.Gone:
			_, _ = fmt.Fprintln(w, "  the pod is gone; DEL, GC or `podweir detach` removes the rest")
		case l.Error != "":
			_, _ = fmt.Fprintf(w, "  error: %s\n", l.Error)
		default:
			mended++
		}
		for _, s := range l.Steps {
			if _, err := fmt.Fprintf(w, "  %s %s\n", did, s); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d interfaces looked at, %d with differences, %d errors.\n", len(r.all), mended, r.failed)
	return err
}
