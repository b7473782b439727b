// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// ends starts load between clients and pods, wherever each of them is. All
// times are of [wiremeter.Now] in this process.
type ends interface {
	client(name string) (*lab.Host, error)
	// elephant starts bulk in either direction.
	elephant(ctx context.Context, e lab.Elephant) (*bulkRun, error)
	// http and echo start a client's load on a pod and return what waits for
	// its end.
	http(ctx context.Context, load lab.HTTPLoad) (waiter, error)
	echo(ctx context.Context, load lab.EchoLoad) (waiter, error)
	// meter counts what arrives at a host.
	meter(h *lab.Host) (meter, error)
}

// waiter returns the result of a load when it has ended.
type waiter func(context.Context) (*lab.Latencies, error)

// bulkRun is bulk in progress.
type bulkRun struct {
	started time.Duration // of the sender
	stop    func(context.Context) (*lab.Bulk, error)
}

type meter interface {
	Read(from, to time.Duration) (*wiremeter.Series, error)
	Close() error
}

// oneMachine has both ends in one lab.
type oneMachine struct{ lab *lab.Lab }

var _ ends = oneMachine{}

func (o oneMachine) client(name string) (*lab.Host, error) { return o.lab.Client(name) }

func (o oneMachine) elephant(ctx context.Context, e lab.Elephant) (*bulkRun, error) {
	run, err := o.lab.StartElephant(ctx, e)
	if err != nil {
		return nil, err
	}
	return &bulkRun{run.Started, run.Stop}, nil
}

func (o oneMachine) http(ctx context.Context, load lab.HTTPLoad) (waiter, error) {
	run, err := o.lab.StartHTTP(ctx, load)
	if err != nil {
		return nil, err
	}
	return run.Wait, nil
}

func (o oneMachine) echo(ctx context.Context, load lab.EchoLoad) (waiter, error) {
	run, err := o.lab.StartEcho(ctx, load)
	if err != nil {
		return nil, err
	}
	return run.Wait, nil
}

func (o oneMachine) meter(h *lab.Host) (meter, error) {
	return wiremeter.Attach(h.Netns, h.IfName, wiremeter.Received)
}
