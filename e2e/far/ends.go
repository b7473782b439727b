// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package far puts load between pods of a lab on this machine and clients that
// are here too, or on another one: a peer, which a wire joins to the node.
// Needs what package lab needs, on both machines.
package far

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// Ends starts load between clients and pods, wherever each of them is. All
// times are of [wiremeter.Now] in this process.
type Ends interface {
	// Client makes a client.
	Client(name string) (*lab.Host, error)
	// Elephant starts bulk in either direction.
	Elephant(ctx context.Context, e lab.Elephant) (*BulkRun, error)
	// HTTP starts a client's load on a pod and returns what waits for its end.
	HTTP(ctx context.Context, load lab.HTTPLoad) (Waiter, error)
	// Echo is HTTP on a kept connection.
	Echo(ctx context.Context, load lab.EchoLoad) (Waiter, error)
	// Meter counts what a host gets, at one of the places of wiremeter; on
	// another machine that is Received alone.
	Meter(h *lab.Host, at wiremeter.Direction) (Meter, error)
}

// Waiter returns the result of a load when it has ended.
type Waiter func(context.Context) (*lab.Latencies, error)

// BulkRun is bulk in progress.
type BulkRun struct {
	// Started is when the sender was.
	Started time.Duration
	// Stop ends it now, and Wait lets it end; both return what was reported
	// until then.
	Stop, Wait func(context.Context) (*lab.Bulk, error)
}

// Meter is a wire meter, here or there.
type Meter interface {
	Read(from, to time.Duration) (*wiremeter.Series, error)
	Close() error
}

// OneMachine has both ends in one lab.
type OneMachine struct{ Lab *lab.Lab }

var _ Ends = OneMachine{}

// Client implements [Ends].
func (o OneMachine) Client(name string) (*lab.Host, error) { return o.Lab.Client(name) }

// Elephant implements [Ends].
func (o OneMachine) Elephant(ctx context.Context, e lab.Elephant) (*BulkRun, error) {
	run, err := o.Lab.StartElephant(ctx, e)
	if err != nil {
		return nil, err
	}
	return &BulkRun{run.Started, run.Stop, run.Wait}, nil
}

// HTTP implements [Ends].
func (o OneMachine) HTTP(ctx context.Context, load lab.HTTPLoad) (Waiter, error) {
	run, err := o.Lab.StartHTTP(ctx, load)
	if err != nil {
		return nil, err
	}
	return run.Wait, nil
}

// Echo implements [Ends].
func (o OneMachine) Echo(ctx context.Context, load lab.EchoLoad) (Waiter, error) {
	run, err := o.Lab.StartEcho(ctx, load)
	if err != nil {
		return nil, err
	}
	return run.Wait, nil
}

// Meter implements [Ends].
func (o OneMachine) Meter(h *lab.Host, at wiremeter.Direction) (Meter, error) {
	return wiremeter.Attach(h.Netns, h.IfName, at)
}
