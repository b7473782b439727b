// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package scenario is what a row of the matrix goes through.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/snapshot"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/matrix/row"
	"github.com/podweir/podweir/e2e/step"
)

// Run is one run of a row.
type Run struct {
	Row     *row.Row
	CNI     cnis.CNI
	Cluster *cluster.Cluster
	// Chart is the directory of podweir's chart, Dir takes the logs of a row that
	// failed.
	Chart, Dir string
	// Say reports progress.
	Say func(format string, args ...any)

	// The pods that stay: two with limits, one on each node; one without on the
	// first node, and their peers, of which free is the control pod's.
	early, remote, control, near, far, free *workload.Pod
	before                                  snapshot.Snapshot
	// guests are pods that a step made and left.
	guests []string

	mu    sync.Mutex
	notes []string
	// said is what components said that are gone, by the names of their logs.
	said map[string]string
}

// Step is one step of a row.
type Step struct {
	Name string
	// Limit is how long it may take.
	Limit time.Duration
	// Needs says why a row leaves the step out; it may be nil.
	Needs func(*Run) string
	// Do is a [step.Run].
	Do func(context.Context, *Run)
}

// expect makes an error one of an expectation: what should be, and what was seen.
func expect(want string, seen error) error {
	if seen == nil {
		return nil
	}
	return fmt.Errorf("expected: %s; seen: %w", want, seen)
}

// soon tries a step of its own until that does not fail, and ends the step if that takes too long.
func soon(ctx context.Context, limit time.Duration, want string, try func(context.Context)) {
	step.OK(expect(want, cluster.Eventually(ctx, limit, func(ctx context.Context) error { return step.Run(func() { try(ctx) }) })))
}

// eventually is soon for as long as the step may take.
func eventually(ctx context.Context, want string, try func(context.Context)) {
	limit := time.Minute
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end) - 2*time.Second
	}
	soon(ctx, limit, want, try)
}

// note keeps something that was measured for the page.
func (r *Run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// taken are the notes since the last call.
func (r *Run) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	notes := r.notes
	r.notes = nil
	return notes
}

// Skips is the reason for which the row leaves a step out, or nothing.
func (r *Run) Skips(s *Step) string {
	reason := r.Row.Skip[s.Name]
	if reason == "" && s.Needs != nil {
		reason = s.Needs(r)
	}
	return reason
}

// All goes through the steps of the row until one fails. The error is a failed
// step's, with its last words.
func (r *Run) All(ctx context.Context, steps []Step) ([]row.Step, error) {
	var out []row.Step
	for _, s := range steps {
		res := row.Step{Name: s.Name, Outcome: row.Passed}
		if reason := r.Skips(&s); reason != "" {
			res.Outcome, res.Notes = row.Skipped, []string{reason}
			out = append(out, res)
			continue
		}
		r.taken()
		began := time.Now()
		err := within(ctx, s.Limit, func(ctx context.Context) error { return step.Run(func() { s.Do(ctx, r) }) })
		res.Seconds, res.Notes = time.Since(began).Seconds(), r.taken()
		if err != nil {
			res.Outcome, res.Notes = row.Failed, append(res.Notes, err.Error())
			return append(out, res), fmt.Errorf("row %s, step %q after %.1f s: %w\n--- last words:\n%s",
				r.Row.Name, s.Name, res.Seconds, err, r.words(context.WithoutCancel(ctx)))
		}
		r.Say("  %-28s %5.1f s  %s", s.Name, res.Seconds, strings.Join(res.Notes, "; "))
		out = append(out, res)
	}
	return out, nil
}

// grace is what a step gets to obey the end of its time.
const grace = 20 * time.Second

// within ends f after a time, also if it does not obey.
func within(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return errors.Join(context.Cause(ctx), err)
	case <-time.After(grace):
		return fmt.Errorf("%w, and %v later it still hangs", context.Cause(ctx), grace)
	}
}
