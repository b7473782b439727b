// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
)

// Prober tries what a look at the node does not show.
type Prober interface {
	// Flows reads the counters of every limit.
	Flows(ctx context.Context) ([]Flow, error)
}

// Flow are the counters of one limit at one moment.
type Flow struct {
	// Pod, Direction and Device name the limit as [Attachment] does.
	Pod, Device string
	Direction   terms.Named[terms.Direction]
	// Passed is what the pod's own device carried in the direction, Held what
	// podweir's queue or program counted, what it dropped included.
	Passed, Held Count
	// Err says why they could not be read, "" if they could.
	Err string
}

// Count is a pair of counters.
type Count struct{ Packets, Bytes uint64 }

// Probe is what was tried.
type Probe struct {
	// Watched is how long it took from the first look to the second.
	Watched time.Duration
	// Before and After are the flows.
	Before, After []Flow
	FlowsErr      error
}

// probe looks twice.
func probe(ctx context.Context, opts *Options) *Probe {
	out, start := &Probe{}, time.Now()
	out.Before, out.FlowsErr = opts.Prober.Flows(ctx)
	select {
	case <-time.After(opts.Watch):
	case <-ctx.Done():
	}
	after, err := opts.Prober.Flows(ctx)
	out.After, out.FlowsErr, out.Watched = after, errors.Join(out.FlowsErr, err), time.Since(start)
	return out
}

// hookOf finds the hook that an attachment has a program on, nil if the device
// was not seen.
func hookOf(devices []Device, a *Attachment) *judge.Chain {
	for i := range devices {
		d := &devices[i]
		switch {
		case d.Name != a.Device:
		case a.Hook == terms.HookEgress:
			return &d.Out
		default:
			return &d.In
		}
	}
	return nil
}
