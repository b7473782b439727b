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
	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/snapshot"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
)

// Names of pods have no hyphens: some policy engines take pods for one that are
// named alike up to the last hyphen.
func (r *Run) run(ctx context.Context, name string, node int, annotations map[string]string) (*workload.Pod, error) {
	r.guests = append(r.guests, name)
	p, err := workload.Run(ctx, r.Cluster, name, r.Cluster.Members[node], annotations)
	if err != nil {
		return nil, expect("pod "+name+" starts", err)
	}
	if err := r.admit(ctx, p); err != nil {
		return nil, err
	}
	return p, r.reaches(ctx, r.far, p)
}

// admit lets pods talk under a CNI where new ones may not.
func (r *Run) admit(ctx context.Context, pods ...*workload.Pod) error {
	strict, ok := r.CNI.(cnis.Admission)
	if !ok {
		return nil
	}
	for _, p := range pods {
		if err := strict.Admit(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// reaches waits until one pod reaches another.
func (r *Run) reaches(ctx context.Context, from, to *workload.Pod) error {
	err := cluster.Eventually(ctx, 20*time.Second, func(ctx context.Context) error { return from.Reach(ctx, to) })
	return expect(fmt.Sprintf("%s on %s reaches %s on %s", from.Name, from.Node.Name, to.Name, to.Node.Name), err)
}

// pods makes those that stay.
func (r *Run) pods(ctx context.Context) error {
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
	if err := workload.Create(ctx, r.Cluster, manifests...); err != nil {
		return err
	}
	pods, err := workload.AllReady(ctx, r.Cluster, names...)
	if err != nil {
		return expect("pods start", err)
	}
	for i, p := range stay {
		*p.into = pods[i]
	}
	if _, strict := r.CNI.(cnis.Admission); strict && r.far.Reach(ctx, r.early) == nil {
		return expect("nobody reaches a new pod", errors.New(r.far.Name+" reaches "+r.early.Name))
	}
	return r.admit(ctx, pods...)
}

// podsBefore makes the pods, and sees what they get without podweir, policy too.
func podsBefore(ctx context.Context, r *Run) error {
	if err := r.pods(ctx); err != nil {
		return err
	}
	if err := r.reachable(ctx); err != nil {
		return err
	}
	if !r.shapedBefore() {
		if err := r.unlimited(ctx, r.early); err != nil {
			return err
		}
	}
	if err := policyHolds(ctx, r); err != nil {
		return err
	}
	// Nothing of an earlier row may be taken for the node's own.
	node := r.Cluster.Members[0]
	if _, err := node.Exec(ctx, "rm", "-rf", "/run/podweir", "/var/lib/podweir"); err != nil {
		return err
	}
	var err error
	r.before, err = snapshot.Take(ctx, node)
	return err
}

// shapedBefore says whether a plugin of the CNI's own limits pods.
func (r *Run) shapedBefore() bool { return strings.Contains(r.Row.Variant, "bandwidth") }

// reachable wants pods to reach one another, on a node and across.
func (r *Run) reachable(ctx context.Context) error {
	if err := r.reaches(ctx, r.near, r.early); err != nil {
		return err
	}
	return r.reaches(ctx, r.far, r.early)
}

// unlimited wants a pod without a cap, with limits in its annotations or not.
func (r *Run) unlimited(ctx context.Context, p *workload.Pod) error {
	t, err := workload.Load{Pod: p, Peer: r.far}.For(ctx, 2*time.Second)
	if err != nil {
		return err
	}
	r.note("%s without podweir: %s in, %s out Mbit/s", p.Name, mbit(t.In.BitsPerSec()), mbit(t.Out.BitsPerSec()))
	return expect(p.Name+" has no limit", t.Err(0, 0))
}

// limited holds a pod to its caps.
func (r *Run) limited(ctx context.Context, what string, l workload.Load, in, out uint64) error {
	named := &load{what: what, Load: l, in: in, out: out}
	t, err := r.measure(ctx, named, looked)
	if err != nil {
		return err
	}
	return r.judge(named, t)
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
func podsBehind(ctx context.Context, r *Run) error {
	if err := r.pods(ctx); err != nil {
		return err
	}
	return errors.Join(r.reachable(ctx), r.capsOf(ctx, r.early, capIn, capOut))
}

// limitedFromBefore: the chart was installed over pods that ran.
func limitedFromBefore(ctx context.Context, r *Run) error {
	for _, p := range []*workload.Pod{r.early, r.remote} {
		if err := r.capsOf(ctx, p, capIn, capOut); err != nil {
			return err
		}
	}
	return r.limited(ctx, "a pod from before", workload.Load{Pod: r.early, Peer: r.far}, capIn, capOut)
}

// worksAsBefore makes pods without podweir, and sees policy enforced again.
func worksAsBefore(ctx context.Context, r *Run) error {
	if err := r.restart(ctx); err != nil {
		return err
	}
	if err := policyHolds(ctx, r); err != nil {
		return err
	}
	late, err := r.run(ctx, "behind", 0, workload.Limits(capInText, capOutText))
	if err != nil {
		return err
	}
	if !r.shapedBefore() {
		return r.unlimited(ctx, late)
	}
	found, err := stockQueue(ctx, late)
	r.note("the CNI's own plugin limits again: %s", found)
	return err
}

// restart finds the pods again, which may have other addresses.
func (r *Run) restart(ctx context.Context) error {
	stay := []**workload.Pod{&r.early, &r.remote, &r.control, &r.near, &r.far, &r.free}
	var names []string
	for _, p := range stay {
		names = append(names, (*p).Name)
	}
	pods, err := workload.AllReady(ctx, r.Cluster, names...)
	if err != nil {
		return expect("pods run", err)
	}
	for i, p := range stay {
		*p = pods[i]
	}
	if err := r.admit(ctx, pods...); err != nil {
		return err
	}
	return r.reachable(ctx)
}

// deleteAll removes every pod of the row, and waits until the runtime has taken their
// networks down: the API forgets pods before.
func (r *Run) deleteAll(ctx context.Context) error {
	if _, err := r.Cluster.Kubectl(ctx, "", "delete", "pods", "--all", "-n", "default", "--wait", "--timeout=100s"); err != nil {
		return err
	}
	err := eventually(ctx, func(ctx context.Context) error {
		for _, n := range r.Cluster.Members {
			left, err := n.Exec(ctx, "bash", "-c", "ls /run/netns | grep ^cni-; true")
			if err == nil && left != "" {
				err = fmt.Errorf("%s has %s", n.Name, left)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return expect("no pod has a network", err)
}
