// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const (
	// loadHead is how long bulk has run when the calls begin: slow start is over.
	loadHead = 3 * time.Second
	// loadLast is how long they last.
	loadLast = 7 * time.Second
	// callRate is how many packets a call has per second, as far as their size
	// allows.
	callRate            = 200
	callLeast, callMost = 100, 1400 // bytes of IP packets
	ethernetBytes       = 14
	// fetchers are the clients of a closed loop, and fetchShare what one of their
	// responses is, in seconds of the cap: 30 kB at 10 Mbit/s.
	fetchers   = 16
	fetchShare = 0.024
)

// ordinary puts on the pod what has no attack in it: bulk, calls and pages, in one
// direction. The unlimited pod has a call of the same kind meanwhile.
func (r *run) ordinary(ctx context.Context) error {
	mix := r.cell.Workload.Mix
	if mix == nil || r.cell.Rate == 0 {
		return fmt.Errorf("workload %s: its load is in shares of the cap, and a mix or the cap is missing", r.cell.Workload.Name)
	}
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) error {
		onlooker, err := r.onlooker(rig)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		l := &ordinary{run: r, rig: rig, pod: pod, mix: mix, onlooker: onlooker}
		return l.measure(ctx)
	})
}

type ordinary struct {
	*run
	rig      *traffic.Rig
	pod      *traffic.Target
	onlooker *lab.Host
	mix      *spec.Mix
}

func (l *ordinary) measure(ctx context.Context) error {
	d := l.direction()
	from, to := l.pod.Ends(d)
	start := wiremeter.Now()
	var bulk []*lab.ElephantRun
	for _, b := range l.mix.Bulk {
		run, err := l.rig.Lab.StartElephant(ctx, lab.Elephant{
			From: from, To: to, CongestionControl: b.Congestion, Flows: b.Flows, Duration: 2 * (loadHead + loadLast),
		})
		if err != nil {
			return err
		}
		bulk = append(bulk, run)
	}
	var pages *lab.RequestsRun
	if l.mix.Fetch {
		var err error
		if pages, err = l.fetch(ctx, from, to); err != nil {
			return err
		}
	}
	if err := wiremeter.Until(ctx, start+loadHead); err != nil {
		return err
	}
	err := l.calls(ctx, from, to)
	end := start + loadHead + loadLast
	return errors.Join(err, l.fetched(ctx, pages), l.bulkDone(ctx, bulk, end), l.steadyWire(d, start+loadHead, end))
}

// fetch has pages sent in the direction: the sender is the server.
func (l *ordinary) fetch(ctx context.Context, from, to *lab.Host) (*lab.RequestsRun, error) {
	return l.rig.Lab.StartHTTP(ctx, lab.HTTPLoad{
		From: to, To: from, Concurrency: fetchers, ResponseBytes: int(fetchShare * float64(l.cell.Rate) / 8),
		Duration: loadHead + loadLast, Timeout: giveUp,
	})
}

func (l *ordinary) fetched(ctx context.Context, pages *lab.RequestsRun) error {
	if pages == nil {
		return nil
	}
	got, err := pages.Wait(ctx)
	if err == nil {
		l.answers("pages", got)
	}
	return err
}

// call is one of the mix, whose packets are as many per second as callRate as far
// as their size allows.
func (l *ordinary) call() lab.Calls {
	perFlow := l.mix.CallShare * float64(l.cell.Rate) / 8 // bytes per second
	size := min(max(int(perFlow/callRate)-ethernetBytes, callLeast), callMost)
	flows := max(l.mix.Calls, 1)
	return lab.Calls{
		Flows: flows, PacketBytes: size, PerSecond: float64(flows) * perFlow / float64(size+ethernetBytes), Duration: loadLast,
	}
}

// calls puts the calls on the pod, and one on the unlimited pod.
func (l *ordinary) calls(ctx context.Context, from, to *lab.Host) error {
	c := l.call()
	c.From, c.To = from, to
	own, err := l.rig.Lab.StartCalls(ctx, c)
	if err != nil {
		return err
	}
	c.PerSecond /= float64(c.Flows)
	c.Flows = 1
	// The same direction, of a pod and a client of its own.
	c.From, c.To = &l.rig.Free.Host, l.onlooker
	if from != &l.pod.Host {
		c.From, c.To = c.To, c.From
	}
	other, err := l.rig.Lab.StartCalls(ctx, c)
	if err != nil {
		return err
	}
	got, err := own.Wait(ctx)
	beside, otherErr := other.Wait(ctx)
	if err := errors.Join(err, otherErr); err != nil {
		return err
	}
	l.told("call", got)
	l.told("call_bystander", beside)
	return nil
}

// told records a call: what was lost, and how long the rest took.
func (l *ordinary) told(name string, c *lab.Latencies) {
	l.set(name+"_lost_percent", 100*float64(c.Failed())/float64(max(len(c.Samples), 1)))
	// What got no answer is at the end of the samples, with the patience.
	answered := c.Samples[:len(c.Samples)-c.Failed()]
	l.distribution(name, answered)
	l.set(name+"_p90_ms", millis(lab.Quantile(answered, 0.9)))
}

// bulkDone ends the bulk, and records how it was shared and what it sent again.
func (l *ordinary) bulkDone(ctx context.Context, runs []*lab.ElephantRun, end time.Duration) error {
	var flows [][]float64 // bytes of each flow in each second
	var again, segments float64
	for _, run := range runs {
		bulk, err := run.Stop(ctx)
		if err != nil {
			return err
		}
		from := (end - loadLast - run.Started).Seconds()
		flows = append(flows, perSecondOf(bulk.Received, from)...)
		late := lab.Between(bulk.Sent, from, math.Inf(1))
		again += late.Retransmits
		if bulk.MSS > 0 {
			segments += late.Bytes / float64(bulk.MSS)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	l.set("late_retransmits_count", again)
	if segments > 0 {
		l.set("late_retransmits_percent", 100*again/segments)
	}
	if len(flows) > 1 {
		l.set("bulk_fairness_share", medianFairness(flows))
	}
	return nil
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

func (l *ordinary) steadyWire(d traffic.Direction, from, to time.Duration) error {
	wire, err := l.pod.Wire(d, from, to)
	if err != nil {
		return err
	}
	l.promise(d, wire)
	l.rates(d.String(), wire)
	l.set(d.String()+"_used_share", wire.BitsPerSec()/float64(l.cell.Rate))
	return nil
}
