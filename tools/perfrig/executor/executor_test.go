// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package executor

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// fake is a substrate on which every run takes no time.
type fake struct {
	runs   []string
	lacks  string // a phase
	fails  string // a run
	cancel context.CancelFunc
	after  int // cancel in the run of this number, from 1
}

func (*fake) Machine(context.Context) (*record.Machine, error) { return &record.Machine{}, nil }

func (f *fake) Unavailable(_ context.Context, c *spec.Cell) (string, error) {
	if c.Phase.Name == f.lacks {
		return "kernel lacks sch_" + f.lacks, nil
	}
	return "", nil
}

func (f *fake) Run(ctx context.Context, r *spec.Run, into *record.Sample) error {
	f.runs = append(f.runs, r.ID())
	into.Metrics = map[string]float64{"egress_used_share": 1}
	if f.after == len(f.runs) {
		f.cancel()
		return ctx.Err()
	}
	if f.fails == r.ID() {
		return errors.New("broken")
	}
	return nil
}

// watcher counts what it has begun and ended.
type watcher struct{ begun, ended int }

func (w *watcher) Watch(string) (func() (record.Others, error), error) {
	w.begun++
	return func() (record.Others, error) { w.ended++; return record.Others{Foreign: 0.25, Stolen: 0.5}, nil }, nil
}

func plan() []spec.Run {
	phases := []spec.Phase{{Name: "a", Kind: spec.Podweir}, {Name: "b", Kind: spec.Bandwidth}}
	s := &spec.Spec{Samples: 2, Blocks: []spec.Block{{
		Phases: phases, Rates: []uint64{1e6},
		Workloads: []spec.Workload{{Name: "w", Seconds: 10}},
	}}}
	return s.Plan(1)
}

type rig struct {
	t    *testing.T
	name string
	w    watcher
	out  bytes.Buffer
}

func (r *rig) run(ctx context.Context, f *fake, slice time.Duration) (*record.Results, error) {
	r.t.Helper()
	file, err := record.Open(r.name, record.Campaign{Digest: "d"})
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			r.t.Error(err)
		}
	}()
	runErr := Run(ctx, f, Options{Plan: plan(), File: file, Watcher: &r.w, Out: &r.out, Slice: slice})
	got, err := record.Read(r.name)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.w.begun != r.w.ended {
		r.t.Errorf("%d watches begun and %d ended", r.w.begun, r.w.ended)
	}
	return got, runErr
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return &rig{t: t, name: filepath.Join(t.TempDir(), "samples.jsonl")}
}

func planIDs() []string {
	var out []string
	for _, r := range plan() {
		out = append(out, r.ID())
	}
	return out
}

func TestRunTakesThePlanInItsOrder(t *testing.T) {
	r, f := newRig(t), &fake{}
	got, err := r.run(t.Context(), f, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(planIDs(), f.runs); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	for _, s := range got.Samples {
		if s.Foreign != 0.25 || s.Stolen != 0.5 || s.Metrics["egress_used_share"] != 1 || s.Started.IsZero() {
			t.Errorf("sample %s = %+v, want all of it recorded", s.ID(), s)
		}
	}
	if n := strings.Count(r.out.String(), "\n"); n != 4 {
		t.Errorf("%d lines of progress, want 4:\n%s", n, r.out.String())
	}
}

// TestCancelledRunIsTakenAgain: the run that Ctrl-C hits leaves no sample, and
// the next execution takes it and what follows.
func TestCancelledRunIsTakenAgain(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{cancel: cancel, after: 2}
	got, err := r.run(ctx, f, 0)
	if !errors.Is(err, context.Canceled) || len(got.Samples) != 1 {
		t.Fatalf("%d samples and %v, want 1 and %v", len(got.Samples), err, context.Canceled)
	}
	f = &fake{}
	if got, err = r.run(t.Context(), f, 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(planIDs()[1:], f.runs); diff != "" {
		t.Errorf("runs of the second execution (-want +got):\n%s", diff)
	}
	if len(got.Samples) != 4 {
		t.Errorf("%d samples, want 4", len(got.Samples))
	}
}

// TestSliceEndsBetweenRuns: a run of 10 s does not begin 15 s before the end of
// nothing; the first is always taken.
func TestSliceEndsBetweenRuns(t *testing.T) {
	r, f := newRig(t), &fake{}
	got, err := r.run(t.Context(), f, 5*time.Second)
	if !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), "3 of 4 runs") || len(got.Samples) != 1 {
		t.Fatalf("%d samples and %v, want 1 and %v", len(got.Samples), err, ErrLeft)
	}
	if _, err := r.run(t.Context(), f, 15*time.Second); err != nil {
		t.Errorf("a slice in which all runs fit = %v, want nil", err)
	}
}

func TestFailedRunDoesNotEndTheOthers(t *testing.T) {
	r, f := newRig(t), &fake{fails: planIDs()[1]}
	got, err := r.run(t.Context(), f, 0)
	if err == nil || !strings.Contains(err.Error(), "1 runs failed") {
		t.Fatalf("Run = %v, want an error that counts the failed run", err)
	}
	i := slices.IndexFunc(got.Samples, func(s record.Sample) bool { return s.ID() == f.fails })
	if s := got.Samples[i]; len(got.Samples) != 4 || s.Failed != "broken" || s.Metrics != nil {
		t.Errorf("failed sample = %+v, want it without numbers among 4", s)
	}
	f = &fake{}
	if _, err := r.run(t.Context(), f, 0); err != nil || len(f.runs) != 1 {
		t.Errorf("the second execution took %v, %v; want the failed run alone", f.runs, err)
	}
}

func TestWhatTheKernelLacksIsSaidOnce(t *testing.T) {
	r, f := newRig(t), &fake{lacks: "b"}
	got, err := r.run(t.Context(), f, 0)
	if err != nil || len(f.runs) != 2 {
		t.Fatalf("%d runs and %v, want those of the other phase and nil", len(f.runs), err)
	}
	for _, s := range got.Samples {
		if want := map[string]string{"b": "kernel lacks sch_b"}[s.Cell.Phase.Name]; s.Unavailable != want {
			t.Errorf("sample %s: unavailable = %q, want %q", s.ID(), s.Unavailable, want)
		}
	}
	if _, err := r.run(t.Context(), f, 0); err != nil || len(f.runs) != 2 {
		t.Errorf("the second execution took %d more runs (%v), want none", len(f.runs)-2, err)
	}
}
