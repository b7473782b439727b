// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
)

// sweep puts one load on the pod, in one direction.
func (r *run) sweep(ctx context.Context) error {
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) error {
		if r.cell.Rate == 0 {
			return r.sweepUncapped(ctx, pod)
		}
		d, l := r.direction(), load(&r.cell.Workload)
		got, err := rig.MeasureOn(ctx, pod, traffic.Case{
			Cap: r.cell.Rate, Direction: d, Load: l, Duration: r.bulkDuration(),
		})
		if err == nil {
			r.result(got)
		}
		return err
	})
}

func (r *run) bulkDuration() time.Duration {
	return time.Duration(r.cell.Workload.BulkSeconds * float64(time.Second))
}

// processor puts bulk on the pod, and records what the machine does for it once it is out of slow
// start and until it ends.
func (r *run) processor(ctx context.Context) error {
	return r.inRig(ctx, func(_ *traffic.Rig, pod *traffic.Target) error {
		d := r.direction()
		rest, err := atRest(ctx)
		if err != nil {
			return err
		}
		offer, err := pod.Start(ctx, d, load(&r.cell.Workload), 0, loadHead+r.bulkDuration())
		if err != nil {
			return err
		}
		if err := wiremeter.Until(ctx, offer.Started+loadHead); err != nil {
			return err
		}
		began := wiremeter.Now()
		before, err := lab.Worked()
		if err != nil {
			return err
		}
		const tail = 300 * time.Millisecond // iperf3's own end
		if err := wiremeter.Until(ctx, offer.Until-tail); err != nil {
			return err
		}
		wire, err := pod.Wire(d, began, wiremeter.Now())
		if err != nil {
			return err
		}
		if r.cell.Rate != 0 {
			r.set(d.String()+"_used_share", wire.BitsPerSec()/float64(r.cell.Rate))
		}
		r.set("machine_rest_cores", rest)
		err = r.cost(before, wire, rest)
		_, _, waitErr := offer.Wait(ctx)
		return errors.Join(err, waitErr)
	})
}

// atRest is how many processors the machine is busy with before the load: at 100 Mbit/s a hundredth of one is 0.1 s
// per Gbit, and this process and the machine's others take some.
func atRest(ctx context.Context) (float64, error) {
	before, err := lab.Worked()
	if err != nil {
		return 0, err
	}
	if err := wiremeter.Until(ctx, wiremeter.Now()+loadHead); err != nil {
		return 0, err
	}
	now, err := lab.Worked()
	return (now.BusySeconds - before.BusySeconds) / (now.At - before.At).Seconds(), err
}

// cost records what the whole machine did for what passed, load generators included, beyond what keeps so many
// processors busy in any case.
func (r *run) cost(before lab.Work, passed *wiremeter.Series, rest float64) error {
	now, err := lab.Worked()
	if gbit := float64(passed.Total()) * 8 / 1e9; err == nil && gbit > 0 {
		r.set("machine_cores_per_gbit", (now.BusySeconds-before.BusySeconds-rest*(now.At-before.At).Seconds())/gbit)
		r.set("timers_per_gbit_count", float64(now.Timers-before.Timers)/gbit)
		r.set("sends_per_gbit_count", float64(now.Sends-before.Sends)/gbit)
		r.set("packets_per_gbit_count", float64(passed.Packets)/gbit)
	}
	return err
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

// sweepUncapped is the same on a pod without a limit.
func (r *run) sweepUncapped(ctx context.Context, pod *traffic.Target) error {
	d := r.direction()
	offer, err := pod.Start(ctx, d, load(&r.cell.Workload), 0, r.bulkDuration())
	if err != nil {
		return err
	}
	bulk, _, err := offer.Wait(ctx)
	if err != nil {
		return err
	}
	wire, err := pod.Wire(d, offer.Started, min(offer.Until, wiremeter.Now()))
	if err != nil {
		return err
	}
	r.set(d.String()+"_wire_bits_per_second", wire.BitsPerSec())
	r.set("carried_bits_per_second", wire.BitsPerSec())
	late := lab.Between(bulk.Received, 1.5, r.bulkDuration().Seconds()+0.5)
	r.set(d.String()+"_goodput_bits_per_second", late.BitsPerSec())
	return nil
}
