// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
)

const (
	// calibration is how long a closed loop finds the machine's maximum.
	calibration = 2 * time.Second
	// percentileLast resolves the 99.9th percentile at a tenth of some 6,000
	// requests per second, and the 99.99th at four fifths.
	percentileLast  = 20 * time.Second
	percentileBytes = 1000
	// percentileClients are enough for a rate that the machine can answer; any
	// number, once it cannot for a moment, would be busy with themselves.
	percentileClients = 64
)

// percentiles asks the pod on fresh connections at a share of what the
// unlimited pod answered at most, a moment before.
func (r *run) percentiles(ctx context.Context) error {
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) error {
		load := lab.HTTPLoad{
			From: rig.Client, To: &rig.Free.Host, ResponseBytes: percentileBytes,
			Concurrency: closedClients, Duration: calibration, Timeout: giveUp,
		}
		most, err := r.ask(ctx, rig, load)
		if err != nil {
			return err
		}
		r.set("maximum_requests_per_second", most.PerSecond())
		load.To, load.Concurrency = &pod.Host, percentileClients
		load.PerSecond, load.Duration = r.cell.Workload.Share*most.PerSecond(), percentileLast
		r.set("asked_requests_per_second", load.PerSecond)
		got, err := r.ask(ctx, rig, load)
		if err != nil {
			return err
		}
		r.answers("open", got)
		return nil
	})
}

func (*run) ask(ctx context.Context, rig *traffic.Rig, load lab.HTTPLoad) (*lab.Latencies, error) {
	run, err := rig.Lab.StartHTTP(ctx, load)
	if err != nil {
		return nil, err
	}
	return run.Wait(ctx)
}
