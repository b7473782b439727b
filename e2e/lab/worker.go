// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/podweir/podweir/e2e/step"
)

// workerEnv names the kind of worker that a process started by a lab is.
const workerEnv = "PODWEIR_LAB_WORKER"

// workerFunc does a worker's job as a [step.Run]. It calls ready once, in its own goroutine, with
// what the parent waits for, and returns its result. quit is closed when the parent wants an
// end or is gone.
type workerFunc func(args json.RawMessage, ready func(any), quit <-chan struct{}) any

var workerKinds = map[string]workerFunc{
	"http-server": with(runHTTPServer),
	"http-client": with(runHTTPClient),
	"echo-server": with(runEchoServer),
	"echo-client": with(runEchoClient),
	"udp-sink":    with(runUDPSink),
	"udp-flood":   with(runUDPFlood),
	"call-server": with(runCallServer),
	"call-client": with(runCallClient),
	"quic-client": with(runQUICClient),
}

// with gives a worker its arguments.
func with[A any](run func(args A, ready func(any), quit <-chan struct{}) any) workerFunc {
	return func(raw json.RawMessage, ready func(any), quit <-chan struct{}) any {
		var args A
		step.OK(json.Unmarshal(raw, &args))
		return run(args, ready, quit)
	}
}

// workerMessage is a line from the worker to its parent.
type workerMessage struct {
	Ready  json.RawMessage `json:",omitempty"`
	Result json.RawMessage `json:",omitempty"`
	Error  string          `json:",omitempty"`
}

// WorkerMain does the job of a load generator if the process was started as
// one, and says whether it was. The caller must return then. Call it first in
// main, or in TestMain:
//
//	func TestMain(m *testing.M) {
//		if lab.WorkerMain() {
//			return
//		}
//		m.Run()
//	}
func WorkerMain() bool {
	kind, ok := os.LookupEnv(workerEnv)
	if !ok {
		return false
	}
	out := json.NewEncoder(os.Stdout)
	var msg workerMessage
	if err := step.Run(func() { msg.Result = serveWorker(kind, out) }); err != nil {
		msg.Error = err.Error()
	}
	// The parent is gone if this does not arrive; nobody is left to tell.
	_ = out.Encode(msg)
	return true
}

func serveWorker(kind string, out *json.Encoder) json.RawMessage {
	run, ok := workerKinds[kind]
	if !ok {
		step.OK(fmt.Errorf("no worker of kind %q", kind))
	}
	in := bufio.NewReader(os.Stdin)
	args := step.Get(in.ReadBytes('\n'))
	quit := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in) // returns when the parent closes it or dies
		close(quit)
	}()
	ready := func(v any) { step.OK(out.Encode(workerMessage{Ready: step.Get(json.Marshal(v))})) }
	return step.Get(json.Marshal(run(args, ready, quit)))
}

// worker is a running load generator.
type worker struct {
	proc  *process
	lines *json.Decoder
}

// startWorker runs a worker in the host's namespace and returns when it says
// that it is ready; readyInfo, if not nil, receives what it said.
func (l *Lab) startWorker(ctx context.Context, h *Host, kind string, args, readyInfo any) (_ *worker, err error) {
	defer step.End(&err)
	raw := step.Get(json.Marshal(args))
	self := step.Get(os.Executable())
	// The kernel's pipe buffers what is never read, such as the result of a
	// server; the read end goes with the worker.
	pr, pw, err := os.Pipe()
	step.OK(err)
	// env(1) carries the kind, so that startProcess stays one for all.
	proc, err := l.startProcess(ctx, h, pw, "/usr/bin/env", workerEnv+"="+kind, self)
	if err := errors.Join(err, pw.Close()); err != nil {
		return nil, errors.Join(err, pr.Close())
	}
	w := &worker{proc: proc, lines: json.NewDecoder(pr)}
	if _, err := proc.stdin.Write(append(raw, '\n')); err != nil {
		return nil, errors.Join(fmt.Errorf("worker %s: %w", kind, err), proc.kill())
	}
	msg, err := w.next()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("worker %s in %s: %w", kind, h.Name, err), proc.kill())
	}
	if readyInfo == nil {
		return w, nil
	}
	return w, json.Unmarshal(msg.Ready, readyInfo)
}

func (w *worker) next() (workerMessage, error) {
	var msg workerMessage
	if err := w.lines.Decode(&msg); err != nil {
		return msg, fmt.Errorf("read its report: %w: %s", err, w.proc.stderr.String())
	}
	if msg.Error != "" {
		return msg, errors.New(msg.Error)
	}
	return msg, nil
}

// result waits for the end of the worker and reads its result into v.
func (w *worker) result(ctx context.Context, v any) error {
	msg, err := w.next()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if err := w.proc.wait(ctx); err != nil {
		return err
	}
	return json.Unmarshal(msg.Result, v)
}

// Run is a load in progress with both of its ends. The client knows what came of it.
type Run[Result any] struct{ client, server *worker }

// RequestsRun is a load of requests.
type RequestsRun = Run[Latencies]

// FloodRun is a load of datagrams that nobody answers.
type FloodRun = Run[FloodResult]

// end is a worker to be started on a host; args is a pointer to what it is told.
type end struct {
	on   *Host
	kind string
	args any
}

// startBoth starts the server, which says in at where it listens, and then the client.
func startBoth[Result any](ctx context.Context, l *Lab, server end, at any, client end) (*Run[Result], error) {
	r := &Run[Result]{}
	var err error
	if r.server, err = l.startWorker(ctx, server.on, server.kind, server.args, at); err != nil {
		return nil, err
	}
	if r.client, err = l.startWorker(ctx, client.on, client.kind, client.args, nil); err != nil {
		return nil, errors.Join(err, r.server.proc.kill())
	}
	return r, nil
}

// Wait returns the result when the load has ended. What was not answered is a failed
// request.
func (r *Run[Result]) Wait(ctx context.Context) (*Result, error) {
	var out Result
	err := r.client.result(ctx, &out)
	return &out, errors.Join(err, r.server.proc.kill())
}
