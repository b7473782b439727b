// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// addRepeats times 50 ADDs are 350: three samples have the thousand of which
// ten lie beyond the 99th percentile, which no sample has by itself.
const addRepeats = 7

// addsBeside times ADD and DEL of the phase's plugin on a node where so many
// pods have been added and stay: 50 more pods are added one at a time and
// deleted, then all at once, again and again.
func (r *run) addsBeside(ctx context.Context) (err error) {
	l, err := lab.New(ctx, r.opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	bw, chain := r.chain()
	network, err := l.Network("stay", chain...)
	if err != nil {
		return err
	}
	// One of those that come and go is there while another is added.
	stay, err := network.Pods(ctx, max(r.cell.Workload.Pods-1, 0), lab.PodOptions{Bandwidth: bw})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.DeletePods(context.WithoutCancel(ctx), stay)) }()
	if err := r.said.err(); err != nil {
		return err
	}
	calls, err := r.makePods(ctx, l, "come", atOnce)
	if err != nil {
		return err
	}
	if err := r.addsOneByOne(ctx, calls); err != nil {
		return err
	}
	return r.addsTogether(ctx, calls)
}

// addsOneByOne deletes each pod before the next but one is added, so that the
// number of pods on the node stays.
func (r *run) addsOneByOne(ctx context.Context, calls []*invocation) error {
	var adds, dels []time.Duration
	var before *invocation
	remove := func() error {
		if before == nil {
			return nil
		}
		took, err := before.run(context.WithoutCancel(ctx), "DEL")
		dels = append(dels, took)
		before = nil
		return err
	}
	for range addRepeats {
		for _, call := range calls {
			took, err := call.run(ctx, "ADD")
			adds = append(adds, took)
			err = errors.Join(err, remove())
			before = call
			if err != nil {
				return errors.Join(err, remove())
			}
		}
	}
	if err := remove(); err != nil {
		return err
	}
	r.distribution("add_one", adds)
	r.distribution("del_one", dels)
	return nil
}

func (r *run) addsTogether(ctx context.Context, calls []*invocation) error {
	var adds []time.Duration
	var whole []float64
	for range addRepeats {
		each, all, err := together(ctx, calls)
		if err != nil {
			return err
		}
		adds, whole = append(adds, each...), append(whole, millis(all))
	}
	r.distribution("add_together", adds)
	r.set("add_together_whole_p50_ms", stats.Summarise(whole).Median)
	return nil
}
