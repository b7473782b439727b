// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/snapshot"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/step"
)

// values are the chart's settings of this row. All agents are replaced at once, not one
// after the other as by default: the pod that is under load is on one node either way, and
// an agent takes ten seconds to go.
func (r *Run) values(more ...string) []string {
	set := append(slices.Clone(r.Row.Set), "updateStrategy.rollingUpdate.maxUnavailable=100%")
	return append(set, more...)
}

func (r *Run) upgrade(ctx context.Context, more ...string) {
	step.OK(r.Cluster.Upgrade(ctx, r.Chart, r.Row.Values, r.values(more...)...))
}

func install(ctx context.Context, r *Run) {
	r.upgrade(ctx)
	agentsReady(ctx, r)
}

// upgradeOnly does not wait for agents.
func upgradeOnly(ctx context.Context, r *Run) { r.upgrade(ctx) }

func agentsReady(ctx context.Context, r *Run) {
	err := r.Cluster.Rollout(ctx)
	if err == nil {
		return
	}
	errs := []error{err}
	for _, n := range r.Cluster.Members {
		_, notReady := n.Fetch(ctx, "/readyz")
		errs = append(errs, notReady)
	}
	step.OK(expect("every agent becomes ready", errors.Join(errs...)))
}

// delivery holds the agents' choice to the row's.
func delivery(ctx context.Context, r *Run) {
	for _, n := range r.Cluster.Members {
		rep := step.Get(r.Cluster.Doctor(ctx, n))
		page := step.Get(n.Fetch(ctx, "/metrics"))
		if want := fmt.Sprintf("podweir_delivery_info{delivery=%q} 1", r.Row.Delivery); !strings.Contains(page, want) {
			step.OK(expect("delivery "+r.Row.Delivery, fmt.Errorf("the metrics of %s have no %s", n.Name, want)))
		}
		if r.Row.Profile != "" && rep.Profile != r.Row.Profile {
			step.OK(expect("profile "+r.Row.Profile, fmt.Errorf("%s has %q (%s)", n.Name, rep.Profile, rep.Why)))
		}
		if n == r.Cluster.Members[0] {
			r.note("delivery %s, profile %s", r.Row.Delivery, rep.Profile)
		}
	}
}

// findings are the checks of nodes that are neither ok nor skipped, with what they
// say.
func (r *Run) findings(ctx context.Context, nodes ...*cluster.Node) (_ map[string]string, err error) {
	defer step.End(&err)
	found := map[string]string{}
	for _, n := range nodes {
		rep := step.Get(r.Cluster.Doctor(ctx, n))
		for _, c := range rep.Findings() {
			found[c.Code] = n.Name + ": " + c.String()
		}
	}
	return found, nil
}

// doctor wants exactly the findings that the row declares.
func doctor(ctx context.Context, r *Run) {
	var found map[string]string
	// A finding may be about what has just changed.
	defer func() {
		if len(found) > 0 {
			r.note("findings %s", strings.Join(slices.Sorted(maps.Keys(found)), ", "))
		} else {
			r.note("all green")
		}
	}()
	soon(ctx, 20*time.Second, "exactly the declared findings", func(ctx context.Context) {
		found = step.Get(r.findings(ctx, r.Cluster.Members...))
		step.OK(undeclared(found, r.Row.Doctor))
		for code := range r.Row.Doctor {
			if found[code] == "" {
				step.OK(fmt.Errorf("%s is declared and not found", code))
			}
		}
	})
}

// undeclared are findings that the row does not have.
func undeclared(found, declared map[string]string) error {
	var errs []error
	for _, code := range slices.Sorted(maps.Keys(found)) {
		if declared[code] == "" {
			errs = append(errs, errors.New(found[code]))
		}
	}
	return errors.Join(errs...)
}

// capsOf waits until the agent says that a pod has these caps, in bits per
// second; 0 is none.
func (r *Run) capsOf(ctx context.Context, p *workload.Pod, ingress, egress uint64) {
	want := map[string]uint64{"ingress": ingress, "egress": egress}
	soon(ctx, 20*time.Second, fmt.Sprintf("caps of %d in and %d out in force", ingress, egress), func(ctx context.Context) {
		page := step.Get(p.Node.Fetch(ctx, "/metrics"))
		for direction, bits := range want {
			if got := capInForce(page, p.Name, direction); got != bits {
				step.OK(fmt.Errorf("%s has the %s cap %d", p.Name, direction, got))
			}
		}
	})
}

// capInForce is a cap in the metrics; 0 is none.
func capInForce(page, pod, direction string) uint64 {
	return uint64(metric(page, "podweir_pod_limit_bits_per_second", `interface="eth0"`, fmt.Sprintf("pod=%q", pod), fmt.Sprintf("direction=%q", direction)))
}

// metric is the number of a metric with some labels; 0 if the page does not have it.
func metric(page, name string, labels ...string) (number float64) {
	for line := range strings.Lines(page) {
		lacks := func(label string) bool { return !strings.Contains(line, label) }
		if strings.HasPrefix(line, name+"{") && !slices.ContainsFunc(labels, lacks) {
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &number)
			return number
		}
	}
	return 0
}

// uninstalled compares the first node with what it was before podweir, and looks
// for traces on the second, which was restarted meanwhile.
func uninstalled(ctx context.Context, r *Run) {
	step.OK(workload.Delete(ctx, r.Cluster, r.guests...))
	r.keepWords(ctx, "podweir", r.agentLog)
	step.OK(expect("the agents go", r.Cluster.Uninstall(ctx)))
	accept := func(line string) bool {
		own, ok := r.CNI.(cnis.Unchanged)
		return ok && own.Own(line)
	}
	after := step.Get(snapshots(ctx, r.Cluster.Members))
	var errs []error
	for i, n := range r.Cluster.Members {
		if i == 0 && r.before != nil {
			differences := snapshot.Compare(r.before, after[i], accept)
			r.note("%d lines of %s compared", len(after[i]), n.Name)
			for _, d := range differences[:min(len(differences), 20)] {
				errs = append(errs, fmt.Errorf("%s: %s", n.Name, d))
			}
			continue
		}
		for _, line := range traces(after[i]) {
			errs = append(errs, fmt.Errorf("%s: is left: %s", n.Name, line))
		}
	}
	step.OK(expect("nodes are as they were before podweir", errors.Join(errs...)))
}

// snapshots looks at nodes at the same time.
func snapshots(ctx context.Context, nodes []*cluster.Node) ([]snapshot.Snapshot, error) {
	out, errs := make([]snapshot.Snapshot, len(nodes)), make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { out[i], errs[i] = snapshot.Take(ctx, n) })
	}
	all.Wait()
	return out, errors.Join(errs...)
}

// traces are lines that only podweir leaves.
func traces(s snapshot.Snapshot) []string {
	var out []string
	for _, d := range snapshot.Compare(nil, s, nil) {
		// The archive of its image is mounted into each node.
		if strings.Contains(d.Line, "podweir") && !strings.HasPrefix(d.Line, "/node/images/") {
			out = append(out, d.Line)
		}
	}
	return out
}
