// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const (
	// loadHead is how long bulk has run when the calls begin: slow start is over.
	loadHead = 3 * time.Second
	// loadLast is how long they last.
	loadLast = 7 * time.Second
)

// ordinary puts calls on the pod and, beside them, what its mix has, all in one
// direction. The unlimited pod has a call of the same kind meanwhile.
func (r *run) ordinary(ctx context.Context) {
	mix := r.cell.Workload.Mix
	if mix == nil || r.cell.Rate == 0 {
		step.OK(fmt.Errorf("workload %s: its load is in shares of the cap, and a mix or the cap is missing", r.cell.Workload.Name))
	}
	r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) {
		onlooker := step.Get(rig.Lab.Client("onlooker"))
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		l := &ordinary{run: r, rig: rig, pod: pod, mix: mix, onlooker: onlooker}
		l.measure(ctx)
	})
}

type ordinary struct {
	*run
	rig      *traffic.Rig
	pod      *traffic.Target
	onlooker *lab.Host
	mix      *spec.Mix
}

func (l *ordinary) measure(ctx context.Context) {
	d := l.direction()
	from, to := l.pod.Ends(d)
	start := wiremeter.Now()
	b := l.startBeside(ctx, d, from, to)
	step.OK(wiremeter.Until(ctx, start+loadHead))
	marksDone := step.Get(l.countMarks(d))
	l.calls(ctx, from, to)
	step.OK(marksDone())
	end := start + loadHead + loadLast
	// Bulk is last: what is measured beside it must not outlast it.
	l.besideDone(ctx, b)
	l.bulkDone(ctx, b.bulk, end)
	l.steadyWire(d, end-loadLast, end)
}

// call is what the mix has of calls.
func (l *ordinary) call() lab.Calls {
	flows, size := max(l.mix.Calls, 1), l.mix.CallPacket(l.cell.Rate)
	return lab.Calls{
		Flows: flows, PacketBytes: size, Duration: loadLast,
		PerSecond: float64(flows) * l.mix.CallBytesPerSecond(l.cell.Rate) / float64(size+spec.EthernetBytes),
	}
}

// calls puts the calls on the pod, and one on the unlimited pod.
func (l *ordinary) calls(ctx context.Context, from, to *lab.Host) {
	c := l.call()
	c.From, c.To = from, to
	calls := step.Get(l.rig.Lab.StartCalls(ctx, c))
	c.Flows, c.PerSecond = 1, c.PerSecond/float64(c.Flows)
	// The same direction, of a pod and a client of its own.
	if c.From, c.To = &l.rig.Free.Host, l.onlooker; from != &l.pod.Host {
		c.From, c.To = c.To, c.From
	}
	bystander := step.Get(l.rig.Lab.StartCalls(ctx, c))
	l.told("call", step.Get(calls.Wait(ctx)))
	l.told("call_bystander", step.Get(bystander.Wait(ctx)))
}

// told records a call: what was lost, and how long the rest took.
func (l *ordinary) told(name string, c *lab.Latencies) {
	l.set(name+"_lost_percent", 100*float64(c.Failed)/float64(max(len(c.Samples), 1)))
	// What got no answer is at the end of the samples, with the patience.
	answered := c.Samples[:len(c.Samples)-c.Failed]
	l.distribution(name, answered)
	l.set(name+"_p90_ms", millis(lab.Quantile(answered, 0.9)))
}

// bulkDone ends the bulk, and records how it was shared and what it sent again.
func (l *ordinary) bulkDone(ctx context.Context, runs []*lab.ElephantRun, end time.Duration) {
	var flows [][]float64 // bytes of each flow in each second
	var again, segments float64
	var roundTrips []time.Duration
	var shares []float64
	for _, run := range runs {
		bulk := step.Get(run.Stop(ctx))
		from := (end - loadLast - run.Started).Seconds()
		received := perSecondOf(bulk.Received, from)
		flows = append(flows, received...)
		for _, flow := range received {
			shares = append(shares, l.share(flow, bulk))
		}
		roundTrips = append(roundTrips, roundTripsOf(bulk.Sent, from)...)
		late := lab.Between(bulk.Sent, from, math.Inf(1))
		again += late.Retransmits
		if bulk.MSS > 0 {
			segments += late.Bytes / float64(bulk.MSS)
		}
	}
	if len(runs) == 0 {
		return
	}
	l.set("late_retransmits_count", again)
	if segments > 0 {
		l.set("late_retransmits_percent", 100*again/segments)
	}
	if len(flows) > 1 {
		l.set("bulk_fairness_share", medianFairness(flows))
	}
	if l.mix.Flood != "" && len(shares) > 0 {
		sum := 0.0
		for _, share := range shares {
			sum += share
		}
		l.set("bulk_least_share", slices.Min(shares))
		l.set("bulk_whole_share", sum)
	}
	if len(roundTrips) > 0 {
		slices.Sort(roundTrips)
		l.set("bulk_round_trip_p50_ms", millis(roundTrips[len(roundTrips)/2]))
	}
}

// share is what a flow has of the cap on the wire, by its bytes in each second.
func (l *ordinary) share(perSecond []float64, bulk *lab.Bulk) float64 {
	sum := 0.0
	for _, bytes := range perSecond {
		sum += bytes
	}
	head := 1 + float64(bulk.HeadBytes)/float64(max(bulk.MSS, 1))
	return sum / float64(max(len(perSecond), 1)) * head * 8 / float64(l.cell.Rate)
}

// roundTripsOf are those of each flow in each interval that lies behind from, in
// seconds since the start.
func roundTripsOf(intervals []lab.BulkInterval, from float64) []time.Duration {
	var out []time.Duration
	for _, i := range intervals {
		if i.Start >= from {
			out = append(out, i.RoundTrips...)
		}
	}
	return out
}

// perSecondOf are the bytes of each flow in each whole second of half-second
// intervals that lie behind from, in seconds since the start.
func perSecondOf(intervals []lab.BulkInterval, from float64) [][]float64 {
	var out [][]float64
	begun := slices.IndexFunc(intervals, func(i lab.BulkInterval) bool { return i.Start >= from })
	if begun < 0 {
		return nil
	}
	intervals = intervals[begun:]
	for second := 0; 2*second+1 < len(intervals) && second < int(loadLast/time.Second)-1; second++ {
		a, b := intervals[2*second].Flows, intervals[2*second+1].Flows
		for flow := range min(len(a), len(b)) {
			if second == 0 {
				out = append(out, nil)
			}
			if flow < len(out) {
				out[flow] = append(out[flow], a[flow]+b[flow])
			}
		}
	}
	return out
}

// medianFairness is the median, over the seconds, of Jain's index of the flows.
func medianFairness(flows [][]float64) float64 {
	var all []float64
	for second := range flows[0] {
		var sum, squares float64
		n := 0
		for _, f := range flows {
			if second < len(f) {
				sum += f[second]
				squares += f[second] * f[second]
				n++
			}
		}
		if squares > 0 {
			all = append(all, sum*sum/(float64(n)*squares))
		}
	}
	slices.Sort(all)
	return lab.Quantile(all, 0.5)
}

func (l *ordinary) steadyWire(d traffic.Direction, from, to time.Duration) {
	wire := step.Get(l.pod.Wire(d, from, to))
	l.promise(d, wire)
	used := wire.BitsPerSec() / float64(l.cell.Rate)
	l.set(d.String()+"_used_share", used)
	// What bulk and the call leave to a flood; after bulkDone.
	if bulk, ok := l.into.Metrics["bulk_whole_share"]; ok {
		l.set("flood_share", used-bulk-l.mix.CallShare)
	}
}
