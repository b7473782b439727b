// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package executor takes the samples of a plan on a substrate, one after the
// other, and writes each as soon as it is there: it may be interrupted at any
// time and goes on where it stopped.
package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// Substrate is where pods are made and loaded.
type Substrate interface {
	// Machine describes it.
	Machine(ctx context.Context) (*record.Machine, error)
	// Unavailable says why it cannot do a cell, for example that the kernel
	// lacks a qdisc; "" if it can.
	Unavailable(ctx context.Context, c *spec.Cell) (string, error)
	// Run takes one sample and fills in what was measured. Whatever happens,
	// and also if ctx ends, nothing of the run is left when it returns.
	Run(ctx context.Context, r *spec.Run, into *record.Sample) error
}

// Watcher looks at the machine during a run.
type Watcher interface {
	// Watch begins; the function that it returns ends it and says how much of
	// the machine, in cores, others took meanwhile.
	Watch(runID string) (stop func() (record.Others, error), err error)
}

// Options are the choices of an execution.
type Options struct {
	Plan    []spec.Run
	File    *record.File
	Watcher Watcher
	// Out is told about progress.
	Out io.Writer
	// Slice, if not 0, is when no further run is begun: one that would not end
	// within it, by its estimate, is left for later. At least one is taken.
	Slice time.Duration
}

// ErrLeft is wrapped if the slice ended before the plan.
var ErrLeft = errors.New("the slice is over, run again to go on")

// Run takes all samples that the file does not have. It returns an error if a
// run failed, after the others were taken, or at once if ctx ended.
func Run(ctx context.Context, s Substrate, o Options) error {
	var open []spec.Run
	done := o.File.Results.Done()
	for _, r := range o.Plan {
		if !done[r.ID()] {
			open = append(open, r)
		}
	}
	p := newProgress(o.Out, len(o.Plan), open)
	began := time.Now()
	failed := 0
	for i := range open {
		r := &open[i]
		expected := p.expect(r)
		if o.Slice > 0 && i > 0 && time.Since(began)+expected > o.Slice {
			p.finish()
			return fmt.Errorf("%d of %d runs are left: %w", len(open)-i, len(o.Plan), ErrLeft)
		}
		p.begin(r)
		sample, err := take(ctx, s, o.Watcher, r)
		if ctx.Err() != nil {
			p.finish()
			// What could not be removed is in it.
			return err
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.ID(), err)
		}
		if err := o.File.Append(sample); err != nil {
			return err
		}
		if sample.Failed != "" {
			failed++
		}
		p.end(sample)
	}
	p.finish()
	if failed > 0 {
		return fmt.Errorf("%d runs failed; run again to try them once more", failed)
	}
	return nil
}

// take takes one sample. What goes wrong in the run itself is in the sample.
func take(ctx context.Context, s Substrate, w Watcher, r *spec.Run) (*record.Sample, error) {
	out := &record.Sample{Cell: r.Cell, Round: r.Round, Started: time.Now().UTC(), LoadBefore: LoadAverage()}
	why, err := s.Unavailable(ctx, &r.Cell)
	if err != nil {
		return nil, err
	}
	if why != "" {
		out.Unavailable, out.LoadAfter = why, out.LoadBefore
		return out, nil
	}
	stop, err := w.Watch(r.ID())
	if err != nil {
		return nil, err
	}
	runErr := s.Run(ctx, r, out)
	others, err := stop()
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), runErr, err)
	}
	if err != nil {
		return nil, err
	}
	out.Foreign, out.Stolen = others.Foreign, others.Stolen
	out.Seconds, out.LoadAfter = time.Since(out.Started).Seconds(), LoadAverage()
	if runErr != nil {
		out.Failed = runErr.Error()
		out.Metrics, out.Latencies, out.Series = nil, nil, nil
	}
	return out, nil
}

// LoadAverage is the machine's, of a minute; 0 where it cannot be read.
func LoadAverage() float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(raw), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
