// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

const (
	// calibrations closed loops, each so long, find the machine's maximum: one of
	// two seconds told 14,000 answers a second or 28,000 of the same machine.
	calibrations = 5
	calibration  = 4 * time.Second
	// percentileLast resolves the 99.9th percentile at a tenth of some 6,000
	// requests per second, and the 99.99th at four fifths.
	percentileLast  = 20 * time.Second
	percentileBytes = 1000
	// percentileClients are enough for a rate that the machine can answer; any
	// number, once it cannot for a moment, would be busy with themselves.
	percentileClients = 64
)

// percentiles asks the pod on fresh connections at a share of what the
// unlimited pod answers at most.
func (r *run) percentiles(ctx context.Context) error {
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) error {
		load := lab.HTTPLoad{
			From: rig.Client, To: &rig.Free.Host, ResponseBytes: percentileBytes,
			Concurrency: closedClients, Duration: calibration, Timeout: giveUp,
		}
		if err := r.calibrate(ctx, rig, load); err != nil {
			return err
		}
		r.set("maximum_requests_per_second", *r.maximum)
		load.To, load.Concurrency = &pod.Host, percentileClients
		load.PerSecond, load.Duration = r.cell.Workload.Share**r.maximum, percentileLast
		r.set("asked_requests_per_second", load.PerSecond)
		got, err := r.ask(ctx, rig, load)
		if err != nil {
			return err
		}
		r.answers("open", got)
		return nil
	})
}

// calibrate finds the machine's maximum, once for all samples of a process:
// phases are compared at the same rate.
func (r *run) calibrate(ctx context.Context, rig *traffic.Rig, load lab.HTTPLoad) error {
	if *r.maximum > 0 {
		return nil
	}
	var perSecond []float64
	for range calibrations {
		got, err := r.ask(ctx, rig, load)
		if err != nil {
			return err
		}
		perSecond = append(perSecond, got.PerSecond())
	}
	*r.maximum = stats.Summarise(perSecond).Median
	return nil
}

func (*run) ask(ctx context.Context, rig *traffic.Rig, load lab.HTTPLoad) (*lab.Latencies, error) {
	run, err := rig.Lab.StartHTTP(ctx, load)
	if err != nil {
		return nil, err
	}
	return run.Wait(ctx)
}
