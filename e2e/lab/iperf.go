// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/podweir/podweir/e2e/step"
)

const (
	iperfPort = 5201
	// iperfInterval is how finely iperf3 reports, in seconds.
	iperfInterval = 0.5
	// iperfStart bounds the wait for a listening iperf3.
	iperfStart = 5 * time.Second
	// iperfEnd is how long an iperf3 whose peer cannot be heard through a
	// full queue gets to write its report.
	iperfEnd = 500 * time.Millisecond
	// ethernetHeaderBytes and tcpHeaderBytes, the latter with timestamps, are in front of each segment.
	ethernetHeaderBytes = 14
	tcpHeaderBytes      = 32
)

// Elephant describes bulk: TCP by iperf3, or [QUIC].
type Elephant struct {
	// From and To are the sender and the receiver.
	From, To *Host
	// IPv6 selects the address family.
	IPv6 bool
	// CongestionControl is the sender's; empty means that of the lab. [QUIC] is by IPv4 alone, and neither limited nor
	// written in pieces.
	CongestionControl string
	// Flows is the number of connections; 0 means 1.
	Flows int
	// Duration is how long it lasts if it is not stopped before.
	Duration time.Duration
	// BitsPerSec, if not 0, limits each connection.
	BitsPerSec uint64
	// WriteBytes, if not 0, is the size of each write: BIG TCP fills its
	// packets from large ones only.
	WriteBytes int
}

// ElephantRun is bulk in progress.
type ElephantRun struct {
	// Started is when the sender was started, in CLOCK_MONOTONIC.
	Started        time.Duration
	client, server *process
	quic           *Run[Bulk] // instead of both
}

// BulkInterval is half a second of iperf3's report.
type BulkInterval struct {
	Start, End  float64 // seconds since the start of the test
	Bytes       float64 // payload
	Retransmits float64 // segments; of the sender only
	// Flows are the bytes of each connection.
	Flows []float64
	// RoundTrips are what TCP takes each connection's for; of the sender only.
	RoundTrips []time.Duration
}

// Bulk is what both ends of a bulk transfer reported.
type Bulk struct {
	Sent, Received []BulkInterval
	// MSS is the sender's segment size in bytes of payload, and HeadBytes what each segment has
	// beside that on the wire, over IPv4.
	MSS, HeadBytes int
}

// StartElephant starts iperf3 on both ends.
func (l *Lab) StartElephant(ctx context.Context, e Elephant) (_ *ElephantRun, err error) {
	defer step.End(&err)
	if e.CongestionControl == QUIC {
		return l.startQUIC(ctx, &e)
	}
	_, err = exec.LookPath("iperf3")
	step.Say(err, "iperf3 is needed for bulk flows")
	port := iperfPort + l.nextPort()
	addr := e.To.Addr(e.IPv6).String()
	server, err := l.startProcess(ctx, e.To, nil, "iperf3",
		"--server", "--one-off", "--json", "--bind", addr, "--port", strconv.Itoa(port),
		"--interval", fmt.Sprint(iperfInterval))
	step.OK(err)
	// Connecting would use up iperf3's only test.
	listens := fmt.Sprintf("ss -Hltn 'sport = :%d' | grep -q .", port)
	for deadline := monotonic() + iperfStart; e.To.Netns.Run(listens) != nil; {
		if monotonic() > deadline || !server.running() || ctx.Err() != nil {
			err := fmt.Errorf("iperf3 does not listen on port %d: %s%s", port, server.stdout.String(), server.stderr.String())
			return nil, errors.Join(ctx.Err(), err, server.kill())
		}
	}
	run := &ElephantRun{Started: monotonic(), server: server}
	run.client, err = l.startProcess(ctx, e.From, nil, "iperf3", l.iperfClient(&e, addr, port)...)
	if err != nil {
		return nil, errors.Join(err, server.kill())
	}
	return run, nil
}

func (l *Lab) iperfClient(e *Elephant, addr string, port int) []string {
	args := []string{
		"--client", addr, "--port", strconv.Itoa(port), "--json",
		"--interval", fmt.Sprint(iperfInterval),
		"--time", strconv.Itoa(int(math.Ceil(e.Duration.Seconds()))),
		"--parallel", strconv.Itoa(max(e.Flows, 1)),
		"--congestion", cmp.Or(e.CongestionControl, congestionControl),
	}
	if e.BitsPerSec != 0 {
		args = append(args, "--bitrate", strconv.FormatUint(e.BitsPerSec, 10))
	}
	if e.WriteBytes != 0 {
		args = append(args, "--length", strconv.Itoa(e.WriteBytes))
	}
	return args
}

// nextPort spreads servers of one namespace over ports.
func (l *Lab) nextPort() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports++
	return l.ports
}

// Stop ends the transfer now and returns what was reported until then.
func (r *ElephantRun) Stop(ctx context.Context) (*Bulk, error) {
	if r.quic != nil {
		_ = r.quic.client.proc.stdin.Close() // a worker that is gone has closed it
		return r.Wait(ctx)
	}
	if err := r.client.signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	return r.Wait(ctx)
}

// Wait returns the reports when the transfer has ended.
func (r *ElephantRun) Wait(ctx context.Context) (*Bulk, error) {
	if r.quic != nil {
		return r.quic.Wait(ctx)
	}
	// Interrupted runs exit with 1 and a complete report, which decides.
	clientErr := r.client.wait(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	select {
	case <-r.server.done:
	case <-time.After(iperfEnd):
		if err := r.server.signal(syscall.SIGTERM); err != nil {
			return nil, err
		}
	}
	serverErr := r.server.wait(ctx)
	sender, err := parseIperf(r.client.stdout.Bytes())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("report of the sender: %w", err), clientErr)
	}
	receiver, err := parseIperf(r.server.stdout.Bytes())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("report of the receiver: %w", err), serverErr)
	}
	return &Bulk{
		Sent: sender.intervals(), Received: receiver.intervals(),
		MSS: sender.Start.MSS, HeadBytes: ethernetHeaderBytes + ipv4HeaderBytes + tcpHeaderBytes,
	}, nil
}

// iperfReport is the part of iperf3's JSON that the lab reads.
type iperfReport struct {
	Start struct {
		MSS int `json:"tcp_mss_default"`
	} `json:"start"`
	Intervals []struct {
		Streams []struct {
			Bytes float64 `json:"bytes"`
			// RTTMicros is of the sender only.
			RTTMicros float64 `json:"rtt"`
		} `json:"streams"`
		Sum struct {
			Start       float64 `json:"start"`
			End         float64 `json:"end"`
			Bytes       float64 `json:"bytes"`
			Retransmits float64 `json:"retransmits"`
		} `json:"sum"`
	} `json:"intervals"`
	Error string `json:"error"`
}

// parseIperf reads a report. An interrupted one is good as long as it has
// intervals.
func parseIperf(raw []byte) (*iperfReport, error) {
	var r iperfReport
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("parse iperf3's JSON: %w", err)
	}
	if len(r.Intervals) == 0 {
		return nil, fmt.Errorf("iperf3 reports no interval: %q", r.Error)
	}
	return &r, nil
}

func (r *iperfReport) intervals() []BulkInterval {
	out := make([]BulkInterval, 0, len(r.Intervals))
	for _, i := range r.Intervals {
		one := BulkInterval{Start: i.Sum.Start, End: i.Sum.End, Bytes: i.Sum.Bytes, Retransmits: i.Sum.Retransmits}
		for _, f := range i.Streams {
			one.Flows = append(one.Flows, f.Bytes)
			if f.RTTMicros > 0 {
				one.RoundTrips = append(one.RoundTrips, time.Duration(f.RTTMicros)*time.Microsecond)
			}
		}
		out = append(out, one)
	}
	return out
}

// Window is the part of a report that lies completely in a time range, in
// seconds since the start of the test.
type Window struct {
	Seconds     float64
	Bytes       float64
	Retransmits float64
}

// BitsPerSec is the mean payload rate of the window, in bits.
func (w *Window) BitsPerSec() float64 {
	if w.Seconds == 0 {
		return 0
	}
	return w.Bytes * 8 / w.Seconds
}

// Between sums the intervals that lie within from and to, in seconds since
// the start of the test. iperf3 ends intervals some milliseconds late, so
// 50 ms of tolerance are given.
func Between(intervals []BulkInterval, from, to float64) *Window {
	const tolerance = 0.05
	w := &Window{}
	for _, i := range intervals {
		if i.Start < from-tolerance || i.End > to+tolerance || i.End <= i.Start {
			continue
		}
		w.Seconds += i.End - i.Start
		w.Bytes += i.Bytes
		w.Retransmits += i.Retransmits
	}
	return w
}
