// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"sync"
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
	next := make(chan int)
	errs := make([]error, together)
	var wg sync.WaitGroup
	for worker := range together {
		wg.Go(func() {
			for i := range next {
				errs[worker] = errors.Join(errs[worker], f(i))
			}
		})
	}
	for i := range pods {
		next <- i
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}
