// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package far

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

const (
	// dialTime bounds the wait for a peer that is still booting.
	dialTime  = time.Minute
	dialPause = 200 * time.Millisecond
	// syncRounds is how often the peer has to tell its time; the quickest
	// answer counts.
	syncRounds = 20
)

// TwoMachines has the pods in this lab and the clients at a peer.
type TwoMachines struct {
	near *lab.Lab
	far  *rpc.Client
	// offset is what the peer's clock shows when this one shows zero.
	offset time.Duration
	// uncertain is by how much offset may be wrong.
	uncertain time.Duration
}

var _ Ends = (*TwoMachines)(nil)

// Dial connects to the peer that serves at an address, which may still be
// booting. The caller must call Close.
func Dial(ctx context.Context, l *lab.Lab, addr string) (*TwoMachines, error) {
	dialer := net.Dialer{Timeout: dialTime}
	for deadline := time.Now().Add(dialTime); ; {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			t := &TwoMachines{near: l, far: jsonrpc.NewClient(conn)}
			if err = t.compare(ctx); err != nil {
				return nil, errors.Join(err, t.far.Close())
			}
			return t, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return nil, fmt.Errorf("the peer: %w", err)
		}
		if err := wiremeter.Until(ctx, wiremeter.Now()+dialPause); err != nil {
			return nil, err
		}
	}
}

// call calls a method of the peer, whose result is a T.
func call[T any](ctx context.Context, t *TwoMachines, method string, args any) (T, error) {
	var reply T
	done := t.far.Go(peerService+"."+method, args, &reply, make(chan *rpc.Call, 1)).Done
	select {
	case c := <-done:
		if c.Error != nil {
			return reply, fmt.Errorf("peer: %s: %w", method, c.Error)
		}
		return reply, nil
	case <-ctx.Done():
		// The reply may still be written to.
		var none T
		return none, ctx.Err()
	}
}

// Close hangs up; what the peer has for this process ends.
func (t *TwoMachines) Close() error { return t.far.Close() }

// compare sets the offset, from the fastest of some calls: emulated clocks drift.
func (t *TwoMachines) compare(ctx context.Context) error {
	for i := range syncRounds {
		asked := wiremeter.Now()
		far, err := call[time.Duration](ctx, t, "Now", struct{}{})
		if err != nil {
			return err
		}
		took := wiremeter.Now() - asked
		if i == 0 || took < t.uncertain {
			t.offset, t.uncertain = far-asked-took/2, took
		}
	}
	return nil
}

// Client implements [Ends].
func (t *TwoMachines) Client(name string) (*lab.Host, error) {
	h, err := call[lab.Host](context.Background(), t, "Client", name)
	return &h, err
}

// isFar says whether a host is the peer's: its namespace is not here.
func isFar(h *lab.Host) bool { return h.Netns == nil }

// HTTP implements [Ends].
func (t *TwoMachines) HTTP(ctx context.Context, load lab.HTTPLoad) (Waiter, error) {
	server, err := t.near.ServeHTTP(ctx, load)
	if err != nil {
		return nil, err
	}
	args := AskHTTPArgs{From: load.From.Name, Server: server.Addr, Load: load}
	args.Load.From, args.Load.To = nil, nil
	run, err := call[int](ctx, t, "AskHTTP", args)
	return t.waiter(server, run, err)
}

// Echo implements [Ends].
func (t *TwoMachines) Echo(ctx context.Context, load lab.EchoLoad) (Waiter, error) {
	server, err := t.near.ServeEcho(ctx, load)
	if err != nil {
		return nil, err
	}
	args := AskEchoArgs{From: load.From.Name, Server: server.Addr, Load: load}
	args.Load.From, args.Load.To = nil, nil
	run, err := call[int](ctx, t, "AskEcho", args)
	return t.waiter(server, run, err)
}

// waiter waits for a load of the peer's on a server of this lab.
func (t *TwoMachines) waiter(server *lab.Server, run int, err error) (Waiter, error) {
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return func(ctx context.Context) (*lab.Latencies, error) {
		l, err := call[lab.Latencies](ctx, t, "Wait", run)
		return &l, errors.Join(err, server.Stop())
	}, nil
}

// Elephant implements [Ends].
func (t *TwoMachines) Elephant(ctx context.Context, e lab.Elephant) (*BulkRun, error) {
	from, to := e.From, e.To
	if isFar(from) {
		return t.elephantIn(ctx, e, from.Name)
	}
	bare := e
	bare.From, bare.To = nil, nil
	receiver, err := call[BulkStarted](ctx, t, "ReceiveBulk", BulkArgs{Host: to.Name, Bulk: bare})
	if err != nil {
		return nil, err
	}
	sender, err := t.near.SendBulk(ctx, e, receiver.Addr)
	if err != nil {
		return nil, err
	}
	// The receiver ends with the sender, and is stopped if it has not heard.
	end := func(sender func(context.Context) ([]lab.BulkInterval, int, error)) func(context.Context) (*lab.Bulk, error) {
		return func(ctx context.Context) (*lab.Bulk, error) {
			sent, mss, err := sender(ctx)
			if err != nil {
				return nil, err
			}
			received, err := call[BulkReport](ctx, t, "StopBulk", receiver.Run)
			return &lab.Bulk{Sent: sent, MSS: mss, Received: received.Intervals}, err
		}
	}
	return &BulkRun{sender.Started, end(sender.Stop), end(sender.Wait)}, nil
}

// elephantIn starts bulk from a client to a pod.
func (t *TwoMachines) elephantIn(ctx context.Context, e lab.Elephant, from string) (*BulkRun, error) {
	receiver, err := t.near.ReceiveBulk(ctx, e)
	if err != nil {
		return nil, err
	}
	bare := e
	bare.From, bare.To = nil, nil
	args := BulkArgs{Host: from, Receiver: receiver.Addr, Bulk: bare}
	sender, err := call[BulkStarted](ctx, t, "SendBulk", args)
	if err != nil {
		return nil, err
	}
	end := func(method string) func(context.Context) (*lab.Bulk, error) {
		return func(ctx context.Context) (*lab.Bulk, error) {
			sent, err := call[BulkReport](ctx, t, method, sender.Run)
			if err != nil {
				return nil, err
			}
			received, _, err := receiver.Stop(ctx)
			return &lab.Bulk{Sent: sent.Intervals, MSS: sent.MSS, Received: received}, err
		}
	}
	return &BulkRun{sender.Started - t.offset, end("StopBulk"), end("WaitBulk")}, nil
}

// Meter implements [Ends]. It also compares the clocks: a meter begins each
// measurement.
func (t *TwoMachines) Meter(h *lab.Host, at wiremeter.Direction) (Meter, error) {
	if !isFar(h) {
		return OneMachine{t.near}.Meter(h, at)
	}
	if at != wiremeter.Received {
		return nil, fmt.Errorf("a peer has no meter at place %d of a host", at)
	}
	ctx := context.Background()
	if err := t.compare(ctx); err != nil {
		return nil, err
	}
	run, err := call[int](ctx, t, "Meter", h.Name)
	if err != nil {
		return nil, err
	}
	// Nothing that is requested is to lie before its start by that clock.
	return &farMeter{t, run}, wiremeter.Until(ctx, wiremeter.Now()+t.uncertain)
}

// farMeter is a meter of the peer's.
type farMeter struct {
	t   *TwoMachines
	run int
}

// Read returns what was counted between two times of this machine.
func (m *farMeter) Read(from, to time.Duration) (*wiremeter.Series, error) {
	span := Span{Run: m.run, From: from + m.t.offset, To: to + m.t.offset}
	s, err := call[wiremeter.Series](context.Background(), m.t, "ReadMeter", span)
	return &s, err
}

// Close ends the meter.
func (m *farMeter) Close() error {
	_, err := call[struct{}](context.Background(), m.t, "CloseMeter", m.run)
	return err
}
