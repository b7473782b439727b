// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// campaign takes the samples of a plan one after the other, and writes each as soon
// as it is there: it may be interrupted at any time and goes on where it stopped.
type campaign struct {
	plan []spec.Run
	file *record.File
	out  io.Writer
	// measure fills a sample in. Whatever happens, and also if the context ends,
	// nothing of the run is left when it returns.
	measure func(context.Context, *spec.Run, *record.Sample) error
}

// run takes all samples that the file does not have. It returns an error if a
// run failed, after the others were taken, or at once if ctx ended.
func (c *campaign) run(ctx context.Context) (err error) {
	defer step.End(&err)
	done := c.file.Results.Done()
	failed := 0
	for i := range c.plan {
		r := &c.plan[i]
		if done[r.ID()] {
			continue
		}
		sample, err := c.sample(ctx, r)
		if ctx.Err() != nil {
			return err // what could not be removed is in it
		}
		step.Say(err, "%s", r.ID())
		step.OK(c.file.Append(sample))
		word := fmt.Sprintf("%.1f s", sample.Seconds)
		switch {
		case sample.Failed != "":
			failed++
			word, _, _ = strings.Cut("FAILED: "+sample.Failed, "\n")
		case sample.Unavailable != "":
			word = "not here: " + sample.Unavailable
		}
		fmt.Fprintf(c.out, "%d/%d %s: %s (others took %.2f cores; about %s left)\n",
			i+1, len(c.plan), r.ID(), word, sample.Foreign, spec.Duration(c.plan[i+1:]))
	}
	if failed > 0 {
		return fmt.Errorf("%d runs failed; run again to try them once more", failed)
	}
	return nil
}

// sample takes one. What goes wrong in the run itself is in the sample.
func (c *campaign) sample(ctx context.Context, r *spec.Run) (_ *record.Sample, err error) {
	defer step.End(&err)
	out := &record.Sample{Cell: r.Cell, Round: r.Round, Started: time.Now().UTC()}
	stop := step.Get(watch())
	runErr := c.measure(ctx, r, out)
	others, err := stop()
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), runErr, err)
	}
	if err != nil {
		return nil, err
	}
	out.Foreign, out.Stolen = others.foreign, others.stolen
	out.Seconds = time.Since(out.Started).Seconds()
	if runErr != nil {
		out.Failed, out.Metrics = runErr.Error(), nil
	}
	return out, nil
}
