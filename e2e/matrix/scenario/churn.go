// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/step"
)

const (
	// batch is how many pods start at a time.
	batch = 25
	// pause is the time between two questions to the doctor, which takes a tenth of
	// a second of a processor.
	pause = time.Second
)

// churn makes pods on the first node and deletes them, while its doctor is asked
// again and again, and looks for what they left; the other node's doctor is asked
// then.
func churn(ctx context.Context, r *Run) {
	before := step.Get(counts(ctx, r.Cluster.Members[0]))
	asking, stop := context.WithCancel(ctx)
	asked := make(chan error, 1)
	go func() { asked <- r.asking(asking) }()
	err := r.churned(ctx)
	stop()
	step.OK(errors.Join(err, <-asked))
	r.nothingLeft(ctx, before)
	r.content(ctx, r.Cluster.Members[1])
}

// churned deletes a batch while the next one starts, as a node sees it when a
// deployment is replaced.
func (r *Run) churned(ctx context.Context) (err error) {
	defer step.End(&err)
	began := time.Now()
	gone := make(chan error, 1)
	gone <- nil // there is no batch before the first
	most := batch
	if few, ok := r.CNI.(cnis.Batch); ok {
		most = few.Batch()
	}
	for first := 0; first < r.Row.Pods; first += most {
		names, err := r.startBatch(ctx, first, min(first+most, r.Row.Pods))
		step.OK(errors.Join(err, <-gone))
		go func() { gone <- workload.Delete(ctx, r.Cluster, names...) }()
	}
	step.OK(<-gone)
	r.note("%d pods in %.0f s", r.Row.Pods, time.Since(began).Seconds())
	return nil
}

// startBatch makes the pods of these numbers and returns their names when they run
// and the last one is limited.
func (r *Run) startBatch(ctx context.Context, from, to int) ([]string, error) {
	var manifests []map[string]any
	var names []string
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprintf("churn%d", i))
		manifests = append(manifests, workload.Manifest(names[len(names)-1], r.Cluster.Members[0], workload.Limits(capInText, capOutText)))
	}
	if err := workload.Create(ctx, r.Cluster, manifests...); err != nil {
		return nil, err
	}
	pods, err := workload.AllReady(ctx, r.Cluster, names...)
	if err != nil {
		return nil, expect("pods start", err)
	}
	return names, step.Run(func() { r.capsOf(ctx, pods[len(pods)-1], capIn, capOut) })
}

// asking asks the first node's doctor until ctx ends. A finding that is there twice
// in a row is one: a single look may fall between a pod and its shaping.
func (r *Run) asking(ctx context.Context) error {
	faulty := false
	times := 0
	for ; ctx.Err() == nil; times++ {
		found, err := r.findings(ctx, r.Cluster.Members[0])
		if err == nil {
			err = undeclared(found, r.Row.Doctor)
		}
		if ctx.Err() == nil && err != nil && faulty {
			return expect("the doctor is content while pods start and stop", err)
		}
		faulty = err != nil
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	r.note("doctor asked %d times", times)
	return nil
}

// content wants no other findings of a node than the row's.
func (r *Run) content(ctx context.Context, n *cluster.Node) {
	soon(ctx, 20*time.Second, "the doctor of "+n.Name+" is content after pods started and stopped", func(ctx context.Context) {
		step.OK(undeclared(step.Get(r.findings(ctx, n)), r.Row.Doctor))
	})
}

// nothingLeft wants no trace of pods that are gone.
func (r *Run) nothingLeft(ctx context.Context, before string) {
	node := r.Cluster.Members[0]
	soon(ctx, 30*time.Second, "nothing is left of pods that are gone", func(ctx context.Context) {
		// Pins, records and metrics name pods; devices and qdiscs go with them.
		out := step.Get(node.Exec(ctx, "bash", "-c", "grep -rl churn /run/podweir 2>/dev/null; find /sys/fs/bpf -name '*churn*'; true"))
		if out != "" {
			step.OK(errors.New(out))
		}
		if strings.Contains(step.Get(node.Fetch(ctx, "/metrics")), `pod="churn`) {
			step.OK(errors.New("metrics name pods that are gone"))
		}
		if now := step.Get(counts(ctx, node)); now != before {
			step.OK(fmt.Errorf("%s, before there were %s", now, before))
		}
	})
}

// counts are how many pins of podweir, namespaces, devices and queues a node has. What
// all pods share is left out: it grows and stays.
func counts(ctx context.Context, node *cluster.Node) (string, error) {
	return node.Exec(ctx, "bash", "-c", "echo $(find /sys/fs/bpf/podweir -name 'node,*' -prune -o -print 2>/dev/null | wc -l) pins, "+
		"$(ls /run/netns | wc -l) namespaces, $(ip -o link | wc -l) devices, $(tc qdisc show | wc -l) queues")
}
