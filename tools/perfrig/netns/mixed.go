// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/e2e/traffic"
)

// closedClients are those of a closed loop.
const closedClients = 10

// What is asked for beside bulk: 150 requests per second for 7 s resolve the 99th percentile;
// with 4 kB they are some 5.5 Mbit/s of the pod's egress.
const (
	// warmUp is when it begins: slow start, and what a burst lets through at
	// first, are over by then.
	warmUp         = 3 * time.Second
	openLast       = 7 * time.Second
	closedLast     = 3 * time.Second
	freshPerSecond = 150
	responseBytes  = 4000
)

// mixed loads the pod with bulk in both directions, or in that of the workload, and asks it, and an
// unlimited bystander with a client of its own, for light answers: on fresh
// connections at a fixed rate and on a kept one at the same time, then on
// fresh connections in a closed loop.
func (r *run) mixed(ctx context.Context) {
	r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) {
		// The bystander's bytes are not to be counted as the pod's.
		m := &mixture{run: r, rig: rig, pod: pod, onlooker: step.Get(rig.Lab.Client("onlooker"))}
		// Nothing of the load outlives a failure.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m.measure(ctx)
	})
}

type mixture struct {
	*run
	rig      *traffic.Rig
	pod      *traffic.Target
	onlooker *lab.Host

	start time.Duration // of the bulk
	bulk  [2]*lab.ElephantRun
}

// span is a part of the run, in [wiremeter.Now].
type span struct{ from, to time.Duration }

func (m *mixture) measure(ctx context.Context) {
	// Kept connections are made first: through a queue of seconds their
	// handshake would not end.
	var kept [2]*lab.RequestsRun
	for i, end := range m.ends() {
		kept[i] = step.Get(m.rig.Lab.StartEcho(ctx, lab.EchoLoad{
			From: end.from, To: end.to, PerSecond: perSecond, Delay: warmUp, Duration: openLast, Timeout: giveUp,
		}))
	}
	m.startBulk(ctx)
	step.OK(wiremeter.Until(ctx, m.start+warmUp))
	open := m.both(ctx, "open", lab.HTTPLoad{PerSecond: freshPerSecond, Duration: openLast})
	var keptAnswers [2]*lab.Latencies
	for i := range kept {
		var err error
		if keptAnswers[i], err = kept[i].Wait(ctx); err != nil {
			step.OK(fmt.Errorf("kept connection: %w", err))
		}
	}
	m.against("kept", m.answers("kept", keptAnswers[0]), m.answers("kept_bystander", keptAnswers[1]))
	closed := m.both(ctx, "closed", lab.HTTPLoad{Concurrency: closedClients, Duration: closedLast})
	m.set("closed_requests_ratio",
		m.into.Metrics["closed_requests_per_second"]/m.into.Metrics["closed_bystander_requests_per_second"])
	m.finish(ctx, open, closed)
}

// ends are the pod's and the bystander's clients and servers.
func (m *mixture) ends() [2]hosts {
	return [2]hosts{{m.rig.Client, &m.pod.Host}, {m.onlooker, &m.rig.Free.Host}}
}

func (m *mixture) startBulk(ctx context.Context) {
	m.start = wiremeter.Now()
	for _, d := range m.directions() {
		from, to := m.pod.Ends(d)
		m.bulk[d] = step.Get(m.rig.Lab.StartElephant(ctx, lab.Elephant{
			From: from, To: to,
			// Longer than needed: it is stopped.
			Duration: 5 * (warmUp + openLast + closedLast),
		}))
	}
}

// both puts a load on the pod and on the bystander at the same time.
func (m *mixture) both(ctx context.Context, name string, l lab.HTTPLoad) span {
	s := span{from: wiremeter.Now()}
	l.ResponseBytes, l.Timeout = responseBytes, giveUp
	var runs [2]*lab.RequestsRun
	for i, end := range m.ends() {
		l.From, l.To = end.from, end.to
		runs[i] = step.Get(m.rig.Lab.StartHTTP(ctx, l))
	}
	// What is asked late is answered late; the wire's counters are of the load's time.
	s.to = wiremeter.Now() + l.Duration
	step.OK(wiremeter.Until(ctx, s.to))
	var got [2]*lab.Latencies
	for i := range runs {
		var err error
		if got[i], err = runs[i].Wait(ctx); err != nil {
			step.OK(fmt.Errorf("%s loop: %w", name, err))
		}
	}
	m.against(name, m.answers(name, got[0]), m.answers(name+"_bystander", got[1]))
	return s
}

// directions are those of the bulk.
func (m *mixture) directions() []traffic.Direction {
	if m.cell.Workload.Direction != "" {
		return []traffic.Direction{m.direction()}
	}
	return traffic.Directions
}

// finish reads the wire, stops the bulk and records what both say.
func (m *mixture) finish(ctx context.Context, open, closed span) {
	for _, d := range m.directions() {
		m.wire(d, open, closed)
		bulk, err := m.bulk[d].Stop(ctx)
		if err != nil {
			step.OK(fmt.Errorf("%s bulk: %w", d, err))
		}
		started := m.bulk[d].Started
		at := func(t time.Duration) float64 { return (t - started).Seconds() }
		// The first half second beside the light flows is half without them.
		m.set(d.String()+"_elephant_goodput_bits_per_second",
			lab.Between(bulk.Received, at(open.from)+0.5, at(open.to)).BitsPerSec())
		late := lab.Between(bulk.Sent, warmUp.Seconds(), math.Inf(1))
		m.set(d.String()+"_late_retransmits_count", late.Retransmits)
		if late.Bytes > 0 && bulk.MSS > 0 {
			m.set(d.String()+"_late_retransmits_percent", 100*late.Retransmits/(late.Bytes/float64(bulk.MSS)))
		}
	}
}

func (m *mixture) wire(d traffic.Direction, open, closed span) {
	m.promise(d, step.Get(m.pod.Wire(d, m.start+warmUp, closed.to)))
	if m.cell.Rate != 0 {
		// What a burst lets through at first is in it.
		whole := step.Get(m.pod.Wire(d, m.start, closed.to))
		m.set(d.String()+"_worst_second_from_start_share", float64(whole.Worst(time.Second))*8/float64(m.cell.Rate))
	}
	for name, part := range map[string]span{"open": open, "closed": closed} {
		series := step.Get(m.pod.Wire(d, part.from, part.to))
		m.set(fmt.Sprintf("%s_%s_wire_bits_per_second", d, name), series.BitsPerSec())
		if m.cell.Rate != 0 {
			m.set(fmt.Sprintf("%s_%s_used_share", d, name), series.BitsPerSec()/float64(m.cell.Rate))
		}
	}
}
