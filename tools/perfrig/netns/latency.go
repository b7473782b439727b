// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/e2e/traffic"
)

const (
	// Three turns of 1.7 s at 200 requests per second resolve the 99th
	// percentile.
	turns  = 3
	turn   = 1700 * time.Millisecond
	giveUp = 3 * time.Second
	// head is how long bulk has run when it counts.
	head = 2 * time.Second
)

// latency measures a kept connection of the pod beside one bulk flow, in turns with
// the unlimited pod's.
func (r *run) latency(ctx context.Context) {
	r.inRig(ctx, func(_ *traffic.Rig, pod *traffic.Target) {
		d := r.direction()
		began := wiremeter.Now()
		kept := step.Get(pod.KeptBeside(ctx, d, traffic.TCP1, r.cell.Rate, turns, turn))
		// Egress holds the bystander's answers, too, 0.2 Mbit/s in its turns.
		wire := step.Get(pod.Wire(d, began+head, began+head+2*turns*turn))
		r.set(d.String()+"_wire_bits_per_second", wire.BitsPerSec())
		r.answers("kept", kept.Pod)
		r.answers("kept_bystander", kept.Bystander)
	})
}
