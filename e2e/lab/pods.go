// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
)

// together is how many pods are made or deleted at the same time: an ADD waits
// for RCU most of the time, and the kernel does what needs RTNL one by one.
const together = 4

// Pods makes so many pods, several at a time. What was made goes with the lab if
// it fails.
func (n *Network) Pods(ctx context.Context, count int, opts PodOptions) ([]*Pod, error) {
	out := make([]*Pod, count)
	return out, eachOf(out, func(i int) (err error) {
		out[i], err = n.Pod(ctx, opts)
		return err
	})
}

// DeletePods deletes pods, several at a time. It returns what went wrong with
// any of them.
func DeletePods(ctx context.Context, pods []*Pod) error {
	return eachOf(pods, func(i int) error { return pods[i].Delete(ctx) })
}

// Reshape runs ADD of the plugins behind ptp once more, with another bandwidth.
func (p *Pod) Reshape(ctx context.Context, bw *Bandwidth) error {
	p.rt.CapabilityArgs["bandwidth"] = bw
	return p.network.addChain(ctx, p)
}

// Reshape is [Pod.Reshape] of many, several at a time.
func Reshape(ctx context.Context, pods []*Pod, bw *Bandwidth) error {
	return eachOf(pods, func(i int) error { return pods[i].Reshape(ctx, bw) })
}

// eachOf calls f with every index of pods and joins the errors.
func eachOf(pods []*Pod, f func(i int) error) error {
	errs := make([]error, len(pods))
	var all errgroup.Group
	all.SetLimit(together)
	for i := range pods {
		all.Go(func() error {
			errs[i] = f(i)
			return nil
		})
	}
	_ = all.Wait()
	return errors.Join(errs...)
}

// Counters sums podweir's own counters of a direction of pods, by what became of packets. Of
// none is an error.
func (l *Lab) Counters(direction string, pods ...*Pod) (map[string]datapath.Counter, error) {
	sum := map[string]datapath.Counter{}
	err := l.node.Do(func() error {
		node, err := engine.Open(engine.DefaultPaths)
		if err != nil {
			return err
		}
		defer node.Close()
		rep, err := status.Collect(node) // of the whole machine, which may have other labs, too
		if err != nil {
			return err
		}
		for _, a := range rep.Attachments {
			if !slices.ContainsFunc(pods, func(p *Pod) bool { return p.ContainerID == a.ID.ContainerID }) {
				continue
			}
			for _, d := range a.Directions {
				if d.Direction.String() != direction {
					continue
				}
				for _, c := range d.Counters {
					was := sum[c.Disposition]
					c.Packets, c.Bytes = c.Packets+was.Packets, c.Bytes+was.Bytes
					sum[c.Disposition] = c
				}
			}
		}
		return nil
	})
	if err == nil && len(sum) == 0 {
		err = fmt.Errorf("podweir's status has nothing of the %s of these pods", direction)
	}
	return sum, err
}
