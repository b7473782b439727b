// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/e2e/traffic"
)

// sweep puts one load on the pod, in one direction.
func (r *run) sweep(ctx context.Context) {
	r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) {
		r.result(step.Get(rig.MeasureOn(ctx, pod, traffic.Case{
			Cap: r.cell.Rate, Direction: r.direction(), Load: load(&r.cell.Workload), Duration: r.bulkDuration(),
		})))
	})
}

func (r *run) bulkDuration() time.Duration {
	return time.Duration(r.cell.Workload.BulkSeconds * float64(time.Second))
}

// processor puts bulk on the pod, and records what the machine does for it once it is out of slow
// start and until it ends.
func (r *run) processor(ctx context.Context) {
	r.inRig(ctx, func(_ *traffic.Rig, pod *traffic.Target) {
		d, rest := r.direction(), atRest(ctx)
		offer := step.Get(pod.Start(ctx, d, load(&r.cell.Workload), 0, loadHead+r.bulkDuration()))
		step.OK(wiremeter.Until(ctx, offer.Started+loadHead))
		began := wiremeter.Now()
		before := step.Get(lab.Worked())
		const tail = 300 * time.Millisecond // iperf3's own end
		step.OK(wiremeter.Until(ctx, offer.Until-tail))
		wire := step.Get(pod.Wire(d, began, wiremeter.Now()))
		if r.cell.Rate != 0 {
			r.set(d.String()+"_used_share", wire.BitsPerSec()/float64(r.cell.Rate))
		}
		r.set("machine_rest_cores", rest)
		r.cost(before, wire, rest)
		_, _, err := offer.Wait(ctx)
		step.OK(err)
	})
}

// atRest is how many processors the machine is busy with before the load: at 100 Mbit/s a hundredth of one is 0.1 s
// per Gbit, and this process and the machine's others take some.
func atRest(ctx context.Context) float64 {
	before := step.Get(lab.Worked())
	step.OK(wiremeter.Until(ctx, wiremeter.Now()+loadHead))
	now := step.Get(lab.Worked())
	return (now.BusySeconds - before.BusySeconds) / (now.At - before.At).Seconds()
}

// cost records what the whole machine did for what passed, load generators included, beyond what keeps so many
// processors busy in any case.
func (r *run) cost(before lab.Work, passed *wiremeter.Series, rest float64) {
	now := step.Get(lab.Worked())
	if gbit := float64(passed.Total()) * 8 / 1e9; gbit > 0 {
		r.set("machine_cores_per_gbit", (now.BusySeconds-before.BusySeconds-rest*(now.At-before.At).Seconds())/gbit)
		r.set("packets_per_gbit_count", float64(passed.Packets)/gbit)
	}
}

func (r *run) result(got *traffic.CapResult) {
	d := got.Direction
	r.promise(d, got.Wire)
	r.set(d.String()+"_used_share", got.Used)
	r.set(d.String()+"_wire_bits_per_second", got.Used*float64(got.Cap))
	r.set("carried_bits_per_second", got.Carried)
	r.set(d.String()+"_goodput_bits_per_second", got.Goodput)
	r.set("early_retransmits_count", got.Early)
	r.set("late_retransmits_count", got.Late)
	if got.Segments > 0 {
		r.set("late_retransmits_percent", 100*got.Late/got.Segments)
	}
}
