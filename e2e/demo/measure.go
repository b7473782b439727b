// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// plan is the load of every row. With thirteen rows of 14 s the demo ends in less
// than four minutes.
var plan = loadPlan{
	// Slow start and what a burst lets through at first are over by then
	// (ruling 17).
	WarmUpSeconds:   3,
	OpenLoopSeconds: 7, ClosedLoopSeconds: 3,
	OpenLoopPerSecond: 100, KeptPerSecond: 200,
	ClosedLoopClients: 10, ResponseBytes: 6000, RequestTimeoutMilli: 3000,
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// bench is what all rows share.
type bench struct {
	lab        *lab.Lab
	node       *lab.Netns
	congestion string
	client     *lab.Host // talks to the pod under test
	bystander  *lab.Pod
	onlooker   *lab.Host // talks to the bystander
	phase      func(string)
}

// newBench makes the clients and the unshaped bystander.
func newBench(ctx context.Context, l *lab.Lab, congestion string) (*bench, error) {
	b := &bench{lab: l, node: l.Node(), congestion: congestion}
	var err error
	if b.client, err = l.Client("client"); err != nil {
		return nil, err
	}
	if b.onlooker, err = l.Client("onlooker"); err != nil {
		return nil, err
	}
	network, err := l.Network("bystander")
	if err != nil {
		return nil, err
	}
	b.bystander, err = network.Pod(ctx, lab.PodOptions{Name: "bystander"})
	return b, err
}

// running is the load on one pod.
type running struct {
	start                     time.Duration // of the elephants
	egress, ingress           *lab.ElephantRun
	egressMeter, ingressMeter *wiremeter.Meter
	kept, bystanderKept       *lab.RequestsRun
	openStart, openEnd        time.Duration
	closeStart, closeEnd      time.Duration
}

// measure makes a pod of the network, loads it and fills in the row. The pod
// is gone afterwards.
func (b *bench) measure(ctx context.Context, network *lab.Network, s *scenario, r *row) (err error) {
	var opts lab.PodOptions
	if s.bandwidth != nil {
		opts.Bandwidth = s.bandwidth(r.CapBitRate)
	}
	pod, err := network.Pod(ctx, opts)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, pod.Delete(context.WithoutCancel(ctx)))
	}()
	if s.double != nil {
		if r.IngressOnly, err = s.double(b.node, pod, r.CapBitRate); err != nil {
			return err
		}
	}
	// Nothing of a row outlives it, whatever happened.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := &running{}
	if run.egressMeter, err = wiremeter.Attach(b.client.Netns, b.client.IfName, wiremeter.Received); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.egressMeter.Close()) }()
	if run.ingressMeter, err = wiremeter.Attach(pod.Netns, pod.IfName, wiremeter.Received); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.ingressMeter.Close()) }()

	if err := b.startElephants(ctx, pod, run, r.IngressOnly); err != nil {
		return err
	}
	b.phase("warm-up")
	if err := wiremeter.Until(ctx, run.start+seconds(plan.WarmUpSeconds)); err != nil {
		return err
	}
	b.phase(", light flows")
	if err := b.openLoop(ctx, pod, run, r); err != nil {
		return err
	}
	b.phase(", closed loop")
	if err := b.closedLoop(ctx, pod, run, r); err != nil {
		return err
	}
	return b.finish(ctx, run, r)
}

// startElephants opens the kept connections first: their handshake is not what
// is measured, and through a queue of seconds it would not end. Bulk that no limit
// holds would measure the machine, so there is none out of a pod without one.
func (b *bench) startElephants(ctx context.Context, pod *lab.Pod, run *running, ingressOnly bool) error {
	kept := lab.EchoLoad{
		From: b.client, To: &pod.Host, PerSecond: plan.KeptPerSecond,
		Delay: seconds(plan.WarmUpSeconds), Duration: seconds(plan.OpenLoopSeconds),
		Timeout: seconds(plan.RequestTimeoutMilli / 1000),
	}
	var err error
	if run.kept, err = b.lab.StartEcho(ctx, kept); err != nil {
		return err
	}
	kept.From, kept.To = b.onlooker, &b.bystander.Host
	if run.bystanderKept, err = b.lab.StartEcho(ctx, kept); err != nil {
		return err
	}
	run.start = wiremeter.Now()
	elephant := lab.Elephant{
		From: &pod.Host, To: b.client, CongestionControl: b.congestion,
		// Longer than needed: they are stopped.
		Duration: seconds(5 * (plan.WarmUpSeconds + plan.OpenLoopSeconds + plan.ClosedLoopSeconds)),
	}
	if !ingressOnly {
		if run.egress, err = b.lab.StartElephant(ctx, elephant); err != nil {
			return err
		}
	}
	elephant.From, elephant.To = elephant.To, elephant.From
	run.ingress, err = b.lab.StartElephant(ctx, elephant)
	return err
}

// openLoop runs the light flows and the kept connection on the pod and on the
// bystander at the same time.
func (b *bench) openLoop(ctx context.Context, pod *lab.Pod, run *running, r *row) error {
	run.openStart = wiremeter.Now()
	load := lab.HTTPLoad{
		From: b.client, To: &pod.Host, ResponseBytes: plan.ResponseBytes,
		PerSecond: plan.OpenLoopPerSecond, Duration: seconds(plan.OpenLoopSeconds),
		Timeout: seconds(plan.RequestTimeoutMilli / 1000),
	}
	open, err := b.lab.StartHTTP(ctx, load)
	if err != nil {
		return err
	}
	load.From, load.To = b.onlooker, &b.bystander.Host
	bystander, err := b.lab.StartHTTP(ctx, load)
	if err != nil {
		return err
	}
	run.openEnd = wiremeter.Now() + seconds(plan.OpenLoopSeconds)
	if err := wiremeter.Until(ctx, run.openEnd); err != nil {
		return err
	}
	for _, result := range []struct {
		wait *lab.RequestsRun
		into *latency
	}{
		{open, &r.Open},
		{bystander, &r.BystanderOpen},
		{run.kept, &r.Kept},
		{run.bystanderKept, &r.BystanderKept},
	} {
		l, err := result.wait.Wait(ctx)
		if err != nil {
			return fmt.Errorf("light flows: %w", err)
		}
		*result.into = newLatency(l)
	}
	return nil
}

func (b *bench) closedLoop(ctx context.Context, pod *lab.Pod, run *running, r *row) error {
	run.closeStart = wiremeter.Now()
	closed, err := b.lab.StartHTTP(ctx, lab.HTTPLoad{
		From: b.client, To: &pod.Host, ResponseBytes: plan.ResponseBytes,
		Concurrency: plan.ClosedLoopClients, Duration: seconds(plan.ClosedLoopSeconds),
		Timeout: seconds(plan.RequestTimeoutMilli / 1000),
	})
	if err != nil {
		return err
	}
	l, err := closed.Wait(ctx)
	if err != nil {
		return fmt.Errorf("closed loop: %w", err)
	}
	r.Closed = newLatency(l)
	run.closeEnd = wiremeter.Now()
	return nil
}

// finish stops the elephants and reads what was counted.
func (b *bench) finish(ctx context.Context, run *running, r *row) error {
	for _, d := range []struct {
		elephant *lab.ElephantRun
		meter    *wiremeter.Meter
		into     *flow
	}{{run.egress, run.egressMeter, &r.Egress}, {run.ingress, run.ingressMeter, &r.Ingress}} {
		if err := fillWire(d.meter, run, r.CapBitRate, d.into); err != nil {
			return err
		}
		if d.elephant == nil {
			continue
		}
		bulk, err := d.elephant.Stop(ctx)
		if err != nil {
			return fmt.Errorf("elephant: %w", err)
		}
		fillBulk(bulk, d.elephant.Started, run, d.into)
	}
	return nil
}

func fillWire(m *wiremeter.Meter, run *running, capBitRate uint64, f *flow) error {
	whole, err := m.Read(run.start, run.closeEnd)
	if err != nil {
		return err
	}
	f.WorstSecondFromStart = float64(whole.Worst(time.Second)) * 8
	steady, err := m.Read(run.start+seconds(plan.WarmUpSeconds), run.closeEnd)
	if err != nil {
		return err
	}
	beside, err := m.Read(run.openStart, run.openEnd)
	if err != nil {
		return err
	}
	f.WireBitRate = beside.BitsPerSec()
	during, err := m.Read(run.closeStart, run.closeEnd)
	if err != nil {
		return err
	}
	f.WireBitRateClosedLoop = during.BitsPerSec()
	if w := steady.Windows(time.Second); len(w) > 0 {
		f.WireSpread = [3]float64{
			float64(w[0]) * 8, float64(lab.Quantile(w, 0.5)) * 8, float64(w[len(w)-1]) * 8,
		}
	}
	if capBitRate != 0 {
		f.ExcessBytes = steady.Excess(float64(capBitRate))
	}
	return nil
}

func fillBulk(bulk *lab.Bulk, started time.Duration, run *running, f *flow) {
	at := func(t time.Duration) float64 { return (t - started).Seconds() }
	// The first half second beside the light flows is half without them.
	beside := lab.Between(bulk.Received, at(run.openStart)+0.5, at(run.openEnd))
	f.ElephantBitRate = beside.BitsPerSec()
	slices.Sort(beside.Rates)
	if n := len(beside.Rates); n > 0 {
		f.ElephantSpread = [3]float64{
			beside.Rates[0], lab.Quantile(beside.Rates, 0.5), beside.Rates[n-1],
		}
	}
	warm := plan.WarmUpSeconds
	steady := lab.Between(bulk.Sent, warm, math.Inf(1))
	f.Retransmits = steady.Retransmits
	f.RetransmitsWarmUp = lab.Between(bulk.Sent, 0, warm).Retransmits
	if steady.Seconds > 0 && steady.Bytes > 0 && bulk.MSS > 0 {
		f.RetransmitsPer10s = steady.Retransmits / steady.Seconds * 10
		f.RetransmitsPercent = steady.Retransmits / (steady.Bytes / float64(bulk.MSS)) * 100
	}
}
