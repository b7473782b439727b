// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"time"
)

// RequestsRun is load of requests in progress, with both of its ends.
type RequestsRun struct{ client, server *worker }

// Wait returns the result when the load has ended. What was not answered is a failed
// request.
func (r *RequestsRun) Wait(ctx context.Context) (*Latencies, error) {
	var out Latencies
	err := r.client.result(ctx, &out)
	return &out, errors.Join(err, r.server.proc.kill())
}

// Server is the answering end of a load whose other end is in another lab.
type Server struct {
	// Addr is where it answers.
	Addr netip.AddrPort

	worker *worker
}

// Stop ends the server.
func (s *Server) Stop() error { return s.worker.proc.kill() }

// ServeHTTP starts the server of a load; load.From is not looked at.
func (l *Lab) ServeHTTP(ctx context.Context, load HTTPLoad) (*Server, error) {
	var addr netip.AddrPort
	w, err := l.startWorker(ctx, load.To, "http-server", httpServerArgs{
		Addr: load.To.Addr(load.IPv6), Bytes: load.ResponseBytes,
		CongestionControl: l.opts.CongestionControl,
	}, &addr)
	return &Server{addr, w}, err
}

// ServeEcho starts the server of a load; load.From is not looked at.
func (l *Lab) ServeEcho(ctx context.Context, load EchoLoad) (*Server, error) {
	addr := netip.AddrPortFrom(load.To.Addr(load.IPv6), 0)
	w, err := l.startWorker(ctx, load.To, "echo-server",
		echoArgs{CongestionControl: l.opts.CongestionControl, Addr: addr}, &addr)
	return &Server{addr, w}, err
}

// Asker is the asking end of a load whose other end is in another lab.
type Asker struct{ worker *worker }

// Wait returns the result when the load has ended.
func (a *Asker) Wait(ctx context.Context) (*Latencies, error) {
	var out Latencies
	err := a.worker.result(ctx, &out)
	return &out, err
}

// AskHTTP starts the load on a server; load.To is not looked at.
func (l *Lab) AskHTTP(ctx context.Context, load HTTPLoad, server netip.AddrPort) (*Asker, error) {
	kind := "http-open"
	if load.PerSecond == 0 {
		kind = "http-closed"
	}
	w, err := l.startWorker(ctx, load.From, kind, httpClientArgs{
		URL:       "http://" + server.String() + "/",
		PerSecond: load.PerSecond, Concurrency: load.Concurrency,
		Duration: load.Duration, Timeout: load.Timeout,
		CongestionControl: l.opts.CongestionControl,
	}, nil)
	return &Asker{w}, err
}

// AskEcho connects to a server and starts the load; load.To is not looked at.
func (l *Lab) AskEcho(ctx context.Context, load EchoLoad, server netip.AddrPort) (*Asker, error) {
	w, err := l.startWorker(ctx, load.From, "echo-client", echoArgs{
		CongestionControl: l.opts.CongestionControl, Addr: server,
		PerSecond: load.PerSecond, Delay: load.Delay, Duration: load.Duration, Timeout: load.Timeout,
	}, nil)
	return &Asker{w}, err
}

// BulkEnd is one end of a bulk transfer whose other end is in another lab.
type BulkEnd struct {
	// Started is when it was started, in CLOCK_MONOTONIC.
	Started time.Duration
	// Addr is where a receiver listens.
	Addr netip.AddrPort

	process *process
	// grace is how long it may go on when it is stopped.
	grace time.Duration
}

// ReceiveBulk starts the receiver of bulk; e.From is not looked at.
func (l *Lab) ReceiveBulk(ctx context.Context, e Elephant) (*BulkEnd, error) {
	addr := netip.AddrPortFrom(e.To.Addr(e.IPv6), uint16(iperfPort+l.nextPort()))
	p, err := l.startProcess(ctx, e.To, nil, "iperf3", iperfServer(addr.Addr().String(), int(addr.Port()))...)
	if err != nil {
		return nil, err
	}
	if err := waitListening(ctx, p, int(addr.Port())); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	// The sender's end, which ends the receiver, may not be heard through a
	// full queue.
	return &BulkEnd{Started: monotonic(), Addr: addr, process: p, grace: iperfEnd}, nil
}

// SendBulk starts the sender of bulk to a receiver; e.To is not looked at.
func (l *Lab) SendBulk(ctx context.Context, e Elephant, receiver netip.AddrPort) (*BulkEnd, error) {
	started := monotonic()
	p, err := l.startProcess(ctx, e.From, nil, "iperf3", l.iperfClient(&e, receiver.Addr().String(), int(receiver.Port()))...)
	if err != nil {
		return nil, err
	}
	return &BulkEnd{Started: started, process: p}, nil
}

// Wait is Stop when this end has ended by itself, for a sender.
func (b *BulkEnd) Wait(ctx context.Context) ([]BulkInterval, int, error) {
	select {
	case <-b.process.done:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	return b.Stop(ctx)
}

// Stop ends this end and returns what it reported and its segment size in
// bytes of payload. The sender must be stopped first.
func (b *BulkEnd) Stop(ctx context.Context) ([]BulkInterval, int, error) {
	select {
	case <-b.process.done:
	case <-time.After(b.grace):
	}
	if err := b.process.signal(syscall.SIGTERM); err != nil {
		return nil, 0, err
	}
	// Interrupted runs exit with 1 and a complete report, which decides.
	endErr := b.process.wait(ctx)
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	report, err := parseIperf(b.process.stdout.Bytes())
	if err != nil {
		return nil, 0, errors.Join(err, endErr)
	}
	return report.intervals(), report.Start.MSS, nil
}
