// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// elsewhereRate is the cap of the pods that are not measured.
const elsewhereRate = 10_000_000

// others measures traffic from one pod without a limit to another, on a node
// where podweir is not, is not used, or holds other pods to a cap.
func (r *run) others(ctx context.Context) (err error) {
	l, err := lab.New(ctx, r.opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	before, err := lab.SettledMemory(ctx)
	if err != nil {
		return err
	}
	from, to, err := r.twoPods(ctx, l)
	if err != nil {
		return err
	}
	after, err := lab.SettledMemory(ctx)
	if err != nil {
		return err
	}
	r.set("memory_node_bytes", float64(after.Sub(before).Total()))
	busy, err := lab.Worked()
	if err != nil {
		return err
	}
	if r.cell.Workload.Streams == 0 {
		return r.othersIdle(ctx, busy)
	}
	return r.othersLoaded(ctx, l, &lab.Elephant{From: &from.Host, To: &to.Host}, busy)
}

// twoPods makes the two, and before them those that podweir has work with.
func (r *run) twoPods(ctx context.Context, l *lab.Lab) (from, to *lab.Pod, err error) {
	_, chain := r.chain()
	network, err := l.Network("others", chain...)
	if err != nil {
		return nil, nil, err
	}
	for range r.cell.Phase.Elsewhere {
		if _, err := network.Pod(ctx, lab.PodOptions{Bandwidth: lab.RuntimeBandwidth(elsewhereRate)}); err != nil {
			return nil, nil, err
		}
	}
	if from, err = network.Pod(ctx, lab.PodOptions{}); err != nil {
		return nil, nil, err
	}
	if to, err = network.Pod(ctx, lab.PodOptions{}); err != nil {
		return nil, nil, err
	}
	return from, to, r.said.err()
}

func (r *run) othersIdle(ctx context.Context, before lab.Work) error {
	last := r.bulkDuration()
	if err := wiremeter.Until(ctx, wiremeter.Now()+last); err != nil {
		return err
	}
	busy, err := lab.Worked()
	r.set("machine_busy_cores", (busy.BusySeconds-before.BusySeconds)/last.Seconds())
	return err
}

func (r *run) othersLoaded(ctx context.Context, l *lab.Lab, e *lab.Elephant, before lab.Work) error {
	// At the pod's own device, behind everything on the way; it is there in all
	// phases.
	meter, err := wiremeter.Attach(e.To.Netns, e.To.IfName, wiremeter.Received)
	if err != nil {
		return err
	}
	began := wiremeter.Now()
	payload, loadErr := r.othersLoad(ctx, l, e)
	series, readErr := meter.Read(began, wiremeter.Now())
	if err := errors.Join(loadErr, readErr, meter.Close()); err != nil {
		return err
	}
	if payload > 0 {
		r.set("goodput_bits_per_second", payload)
	}
	r.set("wire_bits_per_second", float64(series.Total())*8/r.bulkDuration().Seconds())
	return r.cost(before, series, 0)
}

// othersLoad is done when the load has ended; it returns the payload's rate by
// iperf3's receiver, 0 for UDP.
func (r *run) othersLoad(ctx context.Context, l *lab.Lab, e *lab.Elephant) (float64, error) {
	last := r.bulkDuration()
	if flows := r.cell.Workload.Streams; flows < 0 {
		return 0, othersFlood(ctx, l, e, -flows, last)
	}
	e.Flows, e.Duration = r.cell.Workload.Streams, last
	run, err := l.StartElephant(ctx, *e)
	if err != nil {
		return 0, err
	}
	bulk, err := run.Wait(ctx)
	if err != nil {
		return 0, err
	}
	return lab.Between(bulk.Received, 1, last.Seconds()+0.5).BitsPerSec(), nil
}

func othersFlood(ctx context.Context, l *lab.Lab, e *lab.Elephant, flows int, last time.Duration) error {
	runs := make([]*lab.FloodRun, flows)
	for i := range runs {
		var err error
		runs[i], err = l.StartFlood(ctx, lab.UDPFlood{
			From: e.From, To: e.To, PayloadBytes: 1452, Duration: last,
		})
		if err != nil {
			return err
		}
	}
	var errs []error
	for _, run := range runs {
		_, err := run.Wait(ctx)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
