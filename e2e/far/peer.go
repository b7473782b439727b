// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package far

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/rpc"
	"net/rpc/jsonrpc"
	"sync"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/lab/wiremeter"
)

// peerService is the name under which a peer's methods are called.
const peerService = "Peer"

// Peer has the clients where pods are on another machine. Its exported methods
// are called from there. Hosts go by their names, what runs by numbers; times
// are of this machine's CLOCK_MONOTONIC.
type Peer struct {
	ctx context.Context // of a call of Serve: net/rpc hands none to methods
	lab *lab.Lab

	mu    sync.Mutex
	hosts map[string]*lab.Host
	runs  map[int]any // *lab.Asker, *lab.BulkEnd or *wiremeter.Meter
	last  int
}

func newPeer(ctx context.Context, l *lab.Lab) *Peer {
	return &Peer{ctx: ctx, lab: l, hosts: map[string]*lab.Host{}, runs: map[int]any{}}
}

// ServeOptions are the choices of a peer.
type ServeOptions struct {
	// Listen is the address, Device the one that leads to the other machine.
	Listen, Device string
	Lab            lab.Options
	// Out is told where it listens.
	Out io.Writer
}

// Serve lets one caller after another use clients on this machine, each in a
// lab of its own, until ctx ends. When a caller hangs up its lab is closed.
func Serve(ctx context.Context, o ServeOptions) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	fmt.Fprintf(o.Out, "clients for pods on another machine: %s\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		// What was left of one caller is not the next one's fault: if it is in the
		// way, that one is told by its own call.
		if err := o.session(ctx, conn); err != nil && ctx.Err() == nil {
			fmt.Fprintf(o.Out, "a caller's clients: %v\n", err)
		}
	}
}

// session serves one caller until it hangs up.
func (o *ServeOptions) session(ctx context.Context, conn net.Conn) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	l, err := lab.New(ctx, o.Lab)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Join(o.Device, lab.Far); err != nil {
		return errors.Join(err, conn.Close())
	}
	p, server := newPeer(ctx, l), rpc.NewServer()
	if err := server.RegisterName(peerService, p); err != nil {
		return errors.Join(err, conn.Close())
	}
	server.ServeCodec(jsonrpc.NewServerCodec(conn))
	return p.closeMeters()
}

// closeMeters ends those that the caller has left: they hold a namespace.
func (p *Peer) closeMeters() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, run := range p.runs {
		if m, ok := run.(*wiremeter.Meter); ok {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Now returns the time of this machine.
func (p *Peer) Now(_ struct{}, reply *time.Duration) error {
	*reply = wiremeter.Now()
	return nil
}

// Client makes a client; the reply lacks its namespace.
func (p *Peer) Client(name string, reply *lab.Host) error {
	h, err := p.lab.Client(name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts[name] = h
	*reply = *h
	reply.Netns = nil
	return nil
}

// AskHTTPArgs and AskEchoArgs are a load without its ends, from a client to a
// server.
type AskHTTPArgs struct {
	From   string
	Server netip.AddrPort
	Load   lab.HTTPLoad
}

// AskEchoArgs is described at [AskHTTPArgs].
type AskEchoArgs struct {
	From   string
	Server netip.AddrPort
	Load   lab.EchoLoad
}

// AskHTTP starts a load.
func (p *Peer) AskHTTP(args AskHTTPArgs, run *int) (err error) {
	if args.Load.From, err = p.host(args.From); err != nil {
		return err
	}
	a, err := p.lab.AskHTTP(p.ctx, args.Load, args.Server)
	return p.keep(a, err, run)
}

// AskEcho starts a load.
func (p *Peer) AskEcho(args AskEchoArgs, run *int) (err error) {
	if args.Load.From, err = p.host(args.From); err != nil {
		return err
	}
	a, err := p.lab.AskEcho(p.ctx, args.Load, args.Server)
	return p.keep(a, err, run)
}

// Wait returns the result of a load when it has ended.
func (p *Peer) Wait(run int, reply *lab.Latencies) error {
	a, err := taken[*lab.Asker](p, run)
	if err != nil {
		return err
	}
	l, err := a.Wait(p.ctx)
	if err == nil {
		*reply = *l
	}
	return err
}

// BulkArgs is bulk without its ends; Receiver is where the sender sends to.
type BulkArgs struct {
	Host     string
	Receiver netip.AddrPort
	Bulk     lab.Elephant
}

// BulkStarted is an end of bulk in progress.
type BulkStarted struct {
	Run     int
	Addr    netip.AddrPort
	Started time.Duration
}

// SendBulk starts the sender of bulk.
func (p *Peer) SendBulk(args BulkArgs, reply *BulkStarted) (err error) {
	if args.Bulk.From, err = p.host(args.Host); err != nil {
		return err
	}
	b, err := p.lab.SendBulk(p.ctx, args.Bulk, args.Receiver)
	if err != nil {
		return err
	}
	reply.Started = b.Started
	return p.keep(b, nil, &reply.Run)
}

// ReceiveBulk starts the receiver of bulk.
func (p *Peer) ReceiveBulk(args BulkArgs, reply *BulkStarted) (err error) {
	if args.Bulk.To, err = p.host(args.Host); err != nil {
		return err
	}
	b, err := p.lab.ReceiveBulk(p.ctx, args.Bulk)
	if err != nil {
		return err
	}
	reply.Addr = b.Addr
	return p.keep(b, nil, &reply.Run)
}

// BulkReport is what one end of bulk reported.
type BulkReport struct {
	Intervals []lab.BulkInterval
	MSS       int // in bytes
}

// StopBulk ends one end of bulk.
func (p *Peer) StopBulk(run int, reply *BulkReport) error {
	return p.endBulk(run, reply, (*lab.BulkEnd).Stop)
}

// WaitBulk lets the sender of bulk end.
func (p *Peer) WaitBulk(run int, reply *BulkReport) error {
	return p.endBulk(run, reply, (*lab.BulkEnd).Wait)
}

func (p *Peer) endBulk(run int, reply *BulkReport, end func(*lab.BulkEnd, context.Context) ([]lab.BulkInterval, int, error)) error {
	b, err := taken[*lab.BulkEnd](p, run)
	if err != nil {
		return err
	}
	reply.Intervals, reply.MSS, err = end(b, p.ctx)
	return err
}

// Meter counts what arrives at a client.
func (p *Peer) Meter(host string, run *int) error {
	h, err := p.host(host)
	if err != nil {
		return err
	}
	m, err := wiremeter.Attach(h.Netns, h.IfName, wiremeter.Received)
	return p.keep(m, err, run)
}

// Span is a time range of a meter.
type Span struct {
	Run      int
	From, To time.Duration
}

// ReadMeter returns what a meter counted.
func (p *Peer) ReadMeter(s Span, reply *wiremeter.Series) error {
	p.mu.Lock()
	m, ok := p.runs[s.Run].(*wiremeter.Meter)
	p.mu.Unlock()
	if !ok {
		return fmt.Errorf("%d is no meter", s.Run)
	}
	// The clocks agree to a millisecond or so.
	if err := wiremeter.Until(p.ctx, s.To); err != nil {
		return err
	}
	series, err := m.Read(s.From, s.To)
	if err == nil {
		*reply = *series
	}
	return err
}

// CloseMeter ends a meter.
func (p *Peer) CloseMeter(run int, _ *struct{}) error {
	m, err := taken[*wiremeter.Meter](p, run)
	if err != nil {
		return err
	}
	return m.Close()
}

func (p *Peer) host(name string) (*lab.Host, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.hosts[name]
	if !ok {
		return nil, fmt.Errorf("no client %q", name)
	}
	return h, nil
}

// keep numbers what has been started.
func (p *Peer) keep(run any, err error, number *int) error {
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.runs[p.last] = run
	*number = p.last
	return nil
}

// taken returns what keep was given, and forgets it.
func taken[T any](p *Peer, number int) (T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	run, ok := p.runs[number].(T)
	if !ok {
		return run, fmt.Errorf("%d is no %T", number, run)
	}
	delete(p.runs, number)
	return run, nil
}
