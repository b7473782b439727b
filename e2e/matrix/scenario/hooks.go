// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/snapshot"
	"github.com/podweir/podweir/e2e/step"
)

// device is one end of the interface of the pod that stays.
type device struct {
	ns   cluster.Netns
	name string
}

// ends are the devices of the pod that stays: the node's, and its own.
func (r *Run) ends(ctx context.Context) (host, pod device, err error) {
	a, err := r.Cluster.Attachment(ctx, r.early.Node, r.early.Name)
	if a == nil {
		return device{}, device{}, errors.Join(err, errors.New("podweir does not limit "+r.early.Name))
	}
	return device{r.early.Node.Netns(), a.Interface.HostName}, device{r.early.NS, a.Interface.PodName}, err
}

// hooks are those of TCX that have programs.
func (d device) hooks() ([]snapshot.Hook, error) {
	found, err := snapshot.Hooks(d.ns)
	return slices.DeleteFunc(found, func(h snapshot.Hook) bool { return h.Device != d.name }), err
}

// order notes the TCX hooks, on the node, of the pod that stays. No program may run before
// podweir's.
func (r *Run) order(ctx context.Context, when string) {
	host, _, err := r.ends(ctx)
	step.OK(err)
	found, err := host.hooks()
	for _, h := range found {
		seen := fmt.Sprintf("TCX %s of %s %s: %s, revision %d", h.Way, h.Device, when, strings.Join(h.Programs, ", "), h.Revision)
		r.note("%s", seen)
		if slices.IndexFunc(h.Programs, func(p string) bool { return strings.HasPrefix(p, "pw_") }) > 0 {
			err = errors.Join(err, expect("podweir's program runs first", errors.New(seen)))
		}
	}
	step.OK(err)
}

// ourFilter is a filter with a program of podweir's as tc shows it.
var ourFilter = regexp.MustCompile(`pref \d+ bpf .*\bpw_.*tag \w+`)

// ours are the programs of podweir's on the hooks of a device, with their tags and places.
func (d device) ours(ctx context.Context) (seen []string, err error) {
	if d.name == "" {
		return nil, nil // such as the host's end of a macvlan
	}
	found, err := d.hooks()
	for _, h := range found {
		for i, p := range h.Programs {
			if strings.HasPrefix(p, "pw_") {
				seen = append(seen, fmt.Sprintf("TCX %s %d: %s", h.Way, i, p))
			}
		}
	}
	for _, way := range []string{"ingress", "egress"} {
		out, failed := exec.CommandContext(ctx, "nsenter", "--net="+d.ns.Path(), "tc", "filter", "show", "dev", d.name, way).Output()
		err = errors.Join(err, failed)
		for _, f := range ourFilter.FindAllString(string(out), -1) {
			seen = append(seen, "filter "+way+" "+programID.ReplaceAllString(f, ""))
		}
	}
	return seen, err
}

// programID is what differs between two programs of the same code.
var programID = regexp.MustCompile(` id \d+`)

// programs are those of podweir's at both ends of the pod that stays.
func (r *Run) programs(ctx context.Context) ([]string, error) {
	host, pod, err := r.ends(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for side, d := range map[string]device{"node": host, "pod": pod} {
		seen, failed := d.ours(ctx)
		err = errors.Join(err, failed)
		for _, s := range seen {
			all = append(all, side+" "+s)
		}
	}
	slices.Sort(all)
	return all, err
}

// disturbed does something to podweir's agents under load. Afterwards the pod has the same
// programs of podweir's in the same places. A load does not show that the ceiling is gone: the
// queue alone holds the limits of a pod that leaves it in place.
func (r *Run) disturbed(ctx context.Context, f func(context.Context)) {
	before := step.Get(r.programs(ctx))
	r.underLoad(ctx, "meanwhile", f)
	r.note("%d programs of podweir's compared", len(before))
	soon(ctx, 20*time.Second, fmt.Sprintf("podweir's programs are %q again", before), func(ctx context.Context) {
		if after := step.Get(r.programs(ctx)); !slices.Equal(before, after) {
			step.OK(fmt.Errorf("%q", after))
		}
	})
}
