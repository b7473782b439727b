// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
)

const (
	// keptPerSecond is the rate of requests on a kept connection (ruling 17).
	keptPerSecond = 200
	keptTimeout   = 3 * time.Second
	// bulkHead is how long the bulk flow runs before latency counts.
	bulkHead = 1500 * time.Millisecond
)

// Kept is the latency of kept connections beside a load.
type Kept struct {
	// Pod is the loaded pod's connection, Bystander that of the unlimited pod,
	// measured in turns with it.
	Pod, Bystander *lab.Latencies
}

// KeptBeside measures requests and responses on one kept connection of a pod
// and, in turns, of the unlimited pod, while the first is loaded.
func (t *Target) KeptBeside(ctx context.Context, d Direction, load Load, bitsPerSec uint64, turns int, turn time.Duration) (_ *Kept, err error) {
	defer step.End(&err)
	o := step.Get(t.Start(ctx, d, load, bitsPerSec, bulkHead+time.Duration(2*turns)*(turn+starting)))
	defer step.Close(func() error {
		_, _, err := o.Wait(ctx)
		return err
	})
	step.OK(wiremeter.Until(ctx, wiremeter.Now()+bulkHead))
	of := map[*Target][]*lab.Latencies{}
	for range turns {
		for _, who := range []*Target{t, t.rig.Free} {
			run := step.Get(t.rig.Lab.StartEcho(ctx, lab.EchoLoad{
				From: t.rig.Client, To: &who.Host, PerSecond: keptPerSecond,
				Duration: turn, Timeout: keptTimeout,
			}))
			of[who] = append(of[who], step.Get(run.Wait(ctx)))
		}
	}
	return &Kept{Pod: lab.Merge(of[t]...), Bystander: lab.Merge(of[t.rig.Free]...)}, nil
}

// Reference makes a pod shaped by the reference bandwidth plugin with a burst
// in bits; its queue is 25 ms of the cap.
func (r *Rig) Reference(ctx context.Context, bitsPerSec, burstBits uint64) (*Target, error) {
	bw := &lab.Bandwidth{
		IngressRate: bitsPerSec, IngressBurst: burstBits, EgressRate: bitsPerSec, EgressBurst: burstBits,
	}
	return r.Pod(ctx, bw, lab.BandwidthEntry())
}
