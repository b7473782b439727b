// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cilium"
	"github.com/podweir/podweir/e2e/k8s/snapshot"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/step"
)

// Names of pods have no hyphens: some policy engines take pods for one that are
// named alike up to the last hyphen.
func (r *Run) run(ctx context.Context, name string, node int, annotations map[string]string) *workload.Pod {
	r.guests = append(r.guests, name)
	p, err := workload.Run(ctx, r.Cluster, name, r.Cluster.Members[node], annotations)
	step.OK(expect("pod "+name+" starts", err))
	r.admit(ctx, p)
	r.reaches(ctx, r.far, p)
	return p
}

// admit lets pods talk under a CNI where new ones may not.
func (r *Run) admit(ctx context.Context, pods ...*workload.Pod) {
	if strict, ok := r.CNI.(cnis.Admission); ok {
		for _, p := range pods {
			step.OK(strict.Admit(ctx, p))
		}
	}
}

// reaches waits until one pod reaches another.
func (r *Run) reaches(ctx context.Context, from, to *workload.Pod) {
	soon(ctx, 20*time.Second, fmt.Sprintf("%s on %s reaches %s on %s", from.Name, from.Node.Name, to.Name, to.Node.Name), func(ctx context.Context) { step.OK(from.Reach(ctx, to)) })
}

// pods makes those that stay.
func (r *Run) pods(ctx context.Context) {
	limits := workload.Limits(capInText, capOutText)
	stay := []struct {
		into        **workload.Pod
		name        string
		node        int
		annotations map[string]string
	}{
		{&r.early, "early", 0, limits},
		{&r.remote, "remote", 1, limits},
		{&r.control, "control", 0, nil},
		{&r.near, "near", 0, nil},
		{&r.far, "far", 1, nil},
		{&r.free, "free", 0, nil},
	}
	var manifests []map[string]any
	var names []string
	for _, p := range stay {
		m := workload.Manifest(p.name, r.Cluster.Members[p.node], p.annotations)
		// From the start: Cilium takes half a minute to know a pod by other labels.
		m["metadata"].(map[string]any)["labels"] = cilium.Labels(p.name)
		manifests = append(manifests, m)
		names = append(names, p.name)
	}
	step.OK(workload.Create(ctx, r.Cluster, manifests...))
	pods, err := workload.AllReady(ctx, r.Cluster, names...)
	step.OK(expect("pods start", err))
	for i, p := range stay {
		*p.into = pods[i]
	}
	if _, strict := r.CNI.(cnis.Admission); strict && r.far.Reach(ctx, r.early) == nil {
		step.OK(expect("nobody reaches a new pod", errors.New(r.far.Name+" reaches "+r.early.Name)))
	}
	r.admit(ctx, pods...)
}

// podsBefore makes the pods, and sees what they get without podweir, policy too.
func podsBefore(ctx context.Context, r *Run) {
	r.pods(ctx)
	r.reachable(ctx)
	if !r.shapedBefore() {
		r.unlimited(ctx, r.early)
	}
	policyHolds(ctx, r)
	// Nothing of an earlier row may be taken for the node's own.
	node := r.Cluster.Members[0]
	step.Get(node.Exec(ctx, "rm", "-rf", "/run/podweir", "/var/lib/podweir"))
	r.before = step.Get(snapshot.Take(ctx, node))
}

// shapedBefore says whether a plugin of the CNI's own limits pods.
func (r *Run) shapedBefore() bool { return strings.Contains(r.Row.Variant, "bandwidth") }

// reachable wants pods to reach one another, on a node and across.
func (r *Run) reachable(ctx context.Context) {
	r.reaches(ctx, r.near, r.early)
	r.reaches(ctx, r.far, r.early)
}

// unlimited wants a pod without a cap, with limits in its annotations or not.
func (r *Run) unlimited(ctx context.Context, p *workload.Pod) {
	t := step.Get(workload.Load{Pod: p, Peer: r.far}.For(ctx, 2*time.Second))
	r.note("%s without podweir: %s in, %s out Mbit/s", p.Name, mbit(t.In.BitsPerSec()), mbit(t.Out.BitsPerSec()))
	step.OK(expect(p.Name+" has no limit", t.Err(0, 0)))
}

// limited holds a pod to its caps.
func (r *Run) limited(ctx context.Context, what string, l workload.Load, in, out uint64) {
	named := &load{what: what, Load: l, in: in, out: out}
	t := step.Get(r.measure(ctx, named, looked))
	step.OK(r.judge(named, t))
}

// measure loads a pod. Too little, and a little more than is promised, is measured
// again, up to twice and for longer: the machine may have been busy. Too much is not.
func (r *Run) measure(ctx context.Context, l *load, length time.Duration) (t workload.Traffic, err error) {
	for try := range 3 {
		if t, err = l.For(ctx, length); err != nil {
			return t, fmt.Errorf("%s: %w", l.what, err)
		}
		d := t.Directions(l.in, l.out)
		tooMuch := d[0].Above() != nil || d[1].Above() != nil
		if tooMuch || l.err(t) == nil || try == 2 {
			break
		}
		r.note("%s, measured again", l.seen(t))
		length = measured
	}
	return t, nil
}

// seen is a measurement in words.
func (l *load) seen(t workload.Traffic) string {
	d := t.Directions(l.in, l.out)
	return fmt.Sprintf("%s: %s in, %s out Mbit/s, worst second %.1f and %.1f %%", l.what,
		mbit(t.In.BitsPerSec()), mbit(t.Out.BitsPerSec()), 100*d[0].WorstSecond(), 100*d[1].WorstSecond())
}

// judge notes a measurement and holds it to its caps.
func (r *Run) judge(l *load, t workload.Traffic) error {
	r.note("%s", l.seen(t))
	return expect(fmt.Sprintf("%s: %d Mbit/s in and %d out", l.what, l.in/1e6, l.out/1e6), l.err(t))
}

// podsBehind makes the pods that stay where podweir was first.
func podsBehind(ctx context.Context, r *Run) {
	r.pods(ctx)
	r.reachable(ctx)
	r.capsOf(ctx, r.early, capIn, capOut)
}

// limitedFromBefore: the chart was installed over pods that ran.
func limitedFromBefore(ctx context.Context, r *Run) {
	for _, p := range []*workload.Pod{r.early, r.remote} {
		r.capsOf(ctx, p, capIn, capOut)
	}
	r.limited(ctx, "a pod from before", workload.Load{Pod: r.early, Peer: r.far}, capIn, capOut)
}

// worksAsBefore makes pods without podweir, and sees policy enforced again.
func worksAsBefore(ctx context.Context, r *Run) {
	r.restart(ctx)
	policyHolds(ctx, r)
	late := r.run(ctx, "behind", 0, workload.Limits(capInText, capOutText))
	if !r.shapedBefore() {
		r.unlimited(ctx, late)
		return
	}
	found, err := stockQueue(ctx, late)
	r.note("the CNI's own plugin limits again: %s", found)
	step.OK(err)
}

// restart finds the pods again, which may have other addresses.
func (r *Run) restart(ctx context.Context) {
	stay := []**workload.Pod{&r.early, &r.remote, &r.control, &r.near, &r.far, &r.free}
	var names []string
	for _, p := range stay {
		names = append(names, (*p).Name)
	}
	pods, err := workload.AllReady(ctx, r.Cluster, names...)
	step.OK(expect("pods run", err))
	for i, p := range stay {
		*p = pods[i]
	}
	r.admit(ctx, pods...)
	r.reachable(ctx)
}

// deleteAll removes every pod of the row, and waits until the runtime has taken their
// networks down: the API forgets pods before.
func (r *Run) deleteAll(ctx context.Context) {
	step.Get(r.Cluster.Kubectl(ctx, "", "delete", "pods", "--all", "-n", "default", "--wait", "--timeout=100s"))
	eventually(ctx, "no pod has a network", func(ctx context.Context) {
		for _, n := range r.Cluster.Members {
			if left := step.Get(n.Exec(ctx, "bash", "-c", "ls /run/netns | grep ^cni-; true")); left != "" {
				step.OK(fmt.Errorf("%s has %s", n.Name, left))
			}
		}
	})
}
