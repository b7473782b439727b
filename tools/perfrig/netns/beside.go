// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const (
	// besideTail is how much longer than planned the loads beside the calls last, since
	// these begin late by the start of their processes.
	besideTail = time.Second
	// fetchShare is what a response is to one of the clients of a closed loop, in
	// seconds of the cap: 30 kB at 10 Mbit/s.
	fetchShare = 0.024
	// A segment of video is due every videoPeriod, the first videoHead after the
	// start, when one bulk flow is out of slow start. There are two, so that the
	// patience with the second is over when the last answer to a call is.
	videoHead   = time.Second
	videoPeriod = 4 * time.Second
	videoLast   = 2*videoPeriod - time.Second
	// videoPatience is what a player has in its buffer: two segments.
	videoPatience = 2 * videoPeriod
)

// floods send twice the cap, if the mix does not say how much, and were made to pass one.
var floods = map[string]traffic.Load{
	// One flow, full packets.
	"udp": traffic.UDP,
	// Neighbours must find each other, whatever else is sent.
	"discovery": traffic.Discovery,
	// A mark is a request that UDP need not heed.
	"ect0": traffic.UDPECT0,
	// Every packet is a flow of its own, and none is heavy.
	"ports": traffic.UDPPorts,
	// The cost is in packets.
	"tiny": traffic.UDPTiny,
	// Only the first fragment has ports, of three at an MTU of 1,500 bytes.
	"fragments": {Name: "UDP 2x fragments", Flood: lab.UDPFlood{PayloadBytes: 4000}, Times: 2},
}

// beside is what runs beside the calls of a mix; what the mix has not is nil.
type beside struct {
	bulk         []*lab.ElephantRun
	pages, video *lab.RequestsRun
	flood        *traffic.Offer
}

// startBeside starts all but the calls. A tunnel goes with the pod.
func (l *ordinary) startBeside(ctx context.Context, d traffic.Direction, from, to *lab.Host) *beside {
	b := &beside{}
	bulkFrom, bulkTo := from, to
	if l.mix.Tunnel {
		var err error
		bulkFrom, bulkTo, err = l.rig.Lab.Tunnel(from, to)
		step.OK(err)
	}
	for _, of := range l.mix.Bulk {
		if of.ECN {
			step.OK(errors.Join(askForMarks(bulkFrom), askForMarks(bulkTo)))
		}
		b.bulk = append(b.bulk, step.Get(l.rig.Lab.StartElephant(ctx, lab.Elephant{
			From: bulkFrom, To: bulkTo, CongestionControl: of.Congestion, Flows: of.Flows, Duration: 2 * (loadHead + loadLast),
		})))
	}
	if l.mix.Flood != "" {
		load, ok := floods[l.mix.Flood]
		if !ok {
			step.OK(fmt.Errorf("no flood %q", l.mix.Flood))
		}
		rate := l.cell.Rate
		if l.mix.FloodTimes != 0 {
			load.Times, rate = 1, uint64(l.mix.FloodTimes*float64(rate))
		}
		b.flood = step.Get(l.pod.Start(ctx, d, load, rate, loadHead+loadLast+besideTail))
	}
	l.startRequests(ctx, from, to, b)
	return b
}

// startRequests has answers sent in the direction: the sender is the server.
func (l *ordinary) startRequests(ctx context.Context, from, to *lab.Host, b *beside) {
	bytesIn := func(seconds float64) int { return int(seconds * float64(l.cell.Rate) / 8) }
	if l.mix.Fetch {
		b.pages = step.Get(l.rig.Lab.StartHTTP(ctx, lab.HTTPLoad{
			From: to, To: from, Concurrency: spec.Fetchers, ResponseBytes: bytesIn(fetchShare),
			Duration: loadHead + loadLast + besideTail, Timeout: giveUp,
		}))
	}
	if l.mix.VideoShare == 0 {
		return
	}
	step.OK(wiremeter.Until(ctx, wiremeter.Now()+videoHead))
	b.video = step.Get(l.rig.Lab.StartHTTP(ctx, lab.HTTPLoad{
		From: to, To: from, PerSecond: 1 / videoPeriod.Seconds(), ResponseBytes: bytesIn(l.mix.VideoShare * videoPeriod.Seconds()),
		Duration: videoLast, Timeout: videoPatience,
	}))
}

// besideDone waits for what runs beside the calls and ends by itself, and records
// what it saw.
func (l *ordinary) besideDone(ctx context.Context, b *beside) {
	for name, run := range map[string]*lab.RequestsRun{"pages": b.pages, "segment": b.video} {
		if run == nil {
			continue
		}
		got, err := run.Wait(ctx)
		step.Say(err, "%s", name)
		l.answers(name, got)
		if run == b.video {
			l.set(name+"_mean_ms", meanMillis(got.Samples))
		}
	}
	if b.flood != nil {
		_, flood, err := b.flood.Wait(ctx)
		step.OK(err)
		l.set("offered_bits_per_second", traffic.OfferedBits(flood))
	}
}

// meanMillis is of samples too few for a percentile.
func meanMillis(took []time.Duration) float64 {
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	return millis(sum) / float64(max(len(took), 1))
}
