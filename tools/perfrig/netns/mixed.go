// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
	"github.com/podweir/podweir/e2e/traffic"
)

// closedClients are those of a closed loop.
const closedClients = 10

// lightLoad is what a mixed run asks for beside bulk.
type lightLoad struct {
	// warmUp is when it begins: slow start, and what a burst lets through at
	// first, are over by then.
	warmUp, open, closed   time.Duration
	freshPerSecond, kept   float64
	clients, responseBytes int
}

// 150 requests per second for 7 s resolve the 99th percentile; with 4 kB they are
// some 5.5 Mbit/s of the pod's egress.
var besideBulk = lightLoad{
	warmUp: 3 * time.Second, open: 7 * time.Second, closed: 3 * time.Second,
	freshPerSecond: 150, kept: perSecond, clients: closedClients, responseBytes: 4000,
}

// mixed loads the pod with bulk in both directions, or in that of the workload, and asks it, and an
// unlimited bystander with a client of its own, for light answers: on fresh
// connections at a fixed rate and on a kept one at the same time, then on
// fresh connections in a closed loop.
func (r *run) mixed(ctx context.Context) error {
	return r.inRig(ctx, func(rig *traffic.Rig, pod *traffic.Target) error {
		// The bystander's bytes are not to be counted as the pod's.
		onlooker, err := rig.Lab.Client("onlooker")
		if err != nil {
			return err
		}
		m := &mixture{run: r, rig: rig, pod: pod, onlooker: onlooker, light: besideBulk}
		// Nothing of the load outlives a failure.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return m.measure(ctx)
	})
}

type mixture struct {
	*run
	rig      *traffic.Rig
	pod      *traffic.Target
	onlooker *lab.Host
	light    lightLoad

	start time.Duration // of the bulk
	bulk  [2]*lab.ElephantRun
}

// span is a part of the run, in [wiremeter.Now].
type span struct{ from, to time.Duration }

func (m *mixture) measure(ctx context.Context) error {
	// Kept connections are made first: through a queue of seconds their
	// handshake would not end.
	kept := make([]*lab.RequestsRun, 2)
	for i, end := range m.ends() {
		var err error
		kept[i], err = m.rig.Lab.StartEcho(ctx, lab.EchoLoad{
			From: end.from, To: end.to, PerSecond: m.light.kept,
			Delay: m.light.warmUp, Duration: m.light.open, Timeout: giveUp,
		})
		if err != nil {
			return err
		}
	}
	if err := m.startBulk(ctx); err != nil {
		return err
	}
	if err := wiremeter.Until(ctx, m.start+m.light.warmUp); err != nil {
		return err
	}
	open, err := m.both(ctx, "open", lab.HTTPLoad{PerSecond: m.light.freshPerSecond, Duration: m.light.open})
	if err != nil {
		return err
	}
	var keptAnswers [2]*lab.Latencies
	for i := range kept {
		if keptAnswers[i], err = kept[i].Wait(ctx); err != nil {
			return fmt.Errorf("kept connection: %w", err)
		}
	}
	m.against("kept", m.answers("kept", keptAnswers[0]), m.answers("kept_bystander", keptAnswers[1]))
	closed, err := m.closed(ctx)
	if err != nil {
		return err
	}
	return m.finish(ctx, open, closed)
}

func (m *mixture) closed(ctx context.Context) (span, error) {
	s, err := m.both(ctx, "closed", lab.HTTPLoad{Concurrency: m.light.clients, Duration: m.light.closed})
	if err != nil {
		return s, err
	}
	m.set("closed_requests_ratio",
		m.into.Metrics["closed_requests_per_second"]/m.into.Metrics["closed_bystander_requests_per_second"])
	return s, nil
}

// ends are the pod's and the bystander's clients and servers.
func (m *mixture) ends() [2]struct{ from, to *lab.Host } {
	return [2]struct{ from, to *lab.Host }{
		{m.rig.Client, &m.pod.Host}, {m.onlooker, &m.rig.Free.Host},
	}
}

func (m *mixture) startBulk(ctx context.Context) error {
	m.start = wiremeter.Now()
	for _, d := range m.directions() {
		from, to := m.pod.Ends(d)
		var err error
		m.bulk[d], err = m.rig.Lab.StartElephant(ctx, lab.Elephant{
			From: from, To: to,
			// Longer than needed: it is stopped.
			Duration: 5 * (m.light.warmUp + m.light.open + m.light.closed),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// both puts a load on the pod and on the bystander at the same time.
func (m *mixture) both(ctx context.Context, name string, l lab.HTTPLoad) (span, error) {
	s := span{from: wiremeter.Now()}
	l.ResponseBytes, l.Timeout = m.light.responseBytes, giveUp
	var runs [2]*lab.RequestsRun
	for i, end := range m.ends() {
		l.From, l.To = end.from, end.to
		var err error
		if runs[i], err = m.rig.Lab.StartHTTP(ctx, l); err != nil {
			return s, fmt.Errorf("%s loop: %w", name, err)
		}
	}
	// What is asked late is answered late; the wire's counters are of the load's time.
	s.to = wiremeter.Now() + l.Duration
	if err := wiremeter.Until(ctx, s.to); err != nil {
		return s, err
	}
	var got [2]*lab.Latencies
	for i := range runs {
		var err error
		if got[i], err = runs[i].Wait(ctx); err != nil {
			return s, fmt.Errorf("%s loop: %w", name, err)
		}
	}
	m.against(name, m.answers(name, got[0]), m.answers(name+"_bystander", got[1]))
	return s, nil
}

// directions are those of the bulk.
func (m *mixture) directions() []traffic.Direction {
	if m.cell.Workload.Direction != "" {
		return []traffic.Direction{m.direction()}
	}
	return traffic.Directions
}

// finish reads the wire, stops the bulk and records what both say.
func (m *mixture) finish(ctx context.Context, open, closed span) error {
	var errs []error
	for _, d := range m.directions() {
		errs = append(errs, m.wire(d, open, closed))
		bulk, err := m.bulk[d].Stop(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s bulk: %w", d, err))
			continue
		}
		started := m.bulk[d].Started
		at := func(t time.Duration) float64 { return (t - started).Seconds() }
		// The first half second beside the light flows is half without them.
		m.set(d.String()+"_elephant_goodput_bits_per_second",
			lab.Between(bulk.Received, at(open.from)+0.5, at(open.to)).BitsPerSec())
		late := lab.Between(bulk.Sent, m.light.warmUp.Seconds(), math.Inf(1))
		m.set(d.String()+"_late_retransmits_count", late.Retransmits)
		if late.Bytes > 0 && bulk.MSS > 0 {
			m.set(d.String()+"_late_retransmits_percent", 100*late.Retransmits/(late.Bytes/float64(bulk.MSS)))
		}
	}
	return errors.Join(errs...)
}

func (m *mixture) wire(d traffic.Direction, open, closed span) error {
	steady, err := m.pod.Wire(d, m.start+m.light.warmUp, closed.to)
	if err != nil {
		return err
	}
	m.promise(d, steady)
	if m.cell.Rate != 0 {
		// What a burst lets through at first is in it.
		whole, err := m.pod.Wire(d, m.start, closed.to)
		if err != nil {
			return err
		}
		m.set(d.String()+"_worst_second_from_start_share", float64(whole.Worst(time.Second))*8/float64(m.cell.Rate))
	}
	for name, part := range map[string]span{"open": open, "closed": closed} {
		series, err := m.pod.Wire(d, part.from, part.to)
		if err != nil {
			return err
		}
		m.set(fmt.Sprintf("%s_%s_wire_bits_per_second", d, name), series.BitsPerSec())
		if m.cell.Rate != 0 {
			m.set(fmt.Sprintf("%s_%s_used_share", d, name), series.BitsPerSec()/float64(m.cell.Rate))
		}
	}
	return nil
}
