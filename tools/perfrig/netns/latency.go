// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
)

const (
	// Three turns of 1.7 s at 200 requests per second resolve the 99th
	// percentile.
	turns     = 3
	turn      = 1700 * time.Millisecond
	perSecond = 200 // ruling of the design for kept connections
	giveUp    = 3 * time.Second
	// head is how long bulk has run when it counts.
	head = 2 * time.Second
)

// latency measures a kept connection of the pod without load, then beside one
// bulk flow, there in turns with the unlimited pod's.
func (r *run) latency(ctx context.Context) error {
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) error {
		idle, err := idleKept(ctx, rig, pod)
		if err != nil {
			return err
		}
		d := r.direction()
		began := wiremeter.Now()
		kept, err := pod.KeptBeside(ctx, d, traffic.TCP1, r.cell.Rate, turns, turn)
		if err != nil {
			return err
		}
		// Egress holds the bystander's answers, too, 0.2 Mbit/s in its turns.
		wire, err := pod.Wire(d, began+head, began+head+2*turns*turn)
		if err != nil {
			return err
		}
		r.set(d.String()+"_wire_bits_per_second", wire.BitsPerSec())
		loaded := r.answers("kept", kept.Pod)
		r.against("kept", loaded, r.answers("kept_bystander", kept.Bystander))
		r.ratio("kept_p99_over_idle_ratio", loaded, r.answers("idle", idle))
		return nil
	})
}

// idleKept is the latency of a kept connection of the pod with nothing else.
func idleKept(ctx context.Context, rig *traffic.Rig, pod *traffic.Target) (*lab.Latencies, error) {
	run, err := rig.Lab.StartEcho(ctx, lab.EchoLoad{
		From: rig.Client, To: &pod.Host, PerSecond: perSecond, Duration: turns * turn, Timeout: giveUp,
	})
	if err != nil {
		return nil, err
	}
	return run.Wait(ctx)
}
