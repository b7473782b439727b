// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

func plan() []spec.Run {
	phases := []spec.Phase{{Name: "a", Kind: spec.Podweir}, {Name: "b", Kind: spec.Bandwidth}}
	s := &spec.Spec{Samples: 2, Blocks: []spec.Block{{
		Phases: phases, Rates: []uint64{1e6},
		Workloads: []spec.Workload{{Name: "w", Seconds: 10}},
	}}}
	return s.Plan()
}

func planIDs() []string {
	var out []string
	for _, r := range plan() {
		out = append(out, r.ID())
	}
	return out
}

// execute goes on with a campaign whose runs take no time; hit, if not nil, is what
// becomes of one. It returns what the file has then, and which runs were begun.
func execute(ctx context.Context, t *testing.T, name string, hit func(id string, into *record.Sample) error) (got *record.Results, runs []string, runErr error) {
	t.Helper()
	file, err := record.Open(name, record.Campaign{Profile: "p"}, plan())
	must.OK(t, err)
	var out bytes.Buffer
	c := campaign{plan: plan(), file: file, out: &out, measure: func(_ context.Context, r *spec.Run, into *record.Sample) error {
		runs = append(runs, r.ID())
		into.Metrics = map[string]float64{"egress_used_share": 1}
		if hit == nil {
			return nil
		}
		return hit(r.ID(), into)
	}}
	runErr = c.run(ctx)
	must.OK(t, file.Close())
	if got, err = record.Read(name); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != len(runs) && runErr == nil {
		t.Errorf("%d lines of progress of %d runs:\n%s", lines, len(runs), out.String())
	}
	return got, runs, runErr
}

// TestCancelledRunIsTakenAgain: the run that Ctrl-C hits leaves no sample, and
// the next execution takes it and what follows.
func TestCancelledRunIsTakenAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "samples.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	got, _, err := execute(ctx, t, name, func(id string, _ *record.Sample) error {
		if id == planIDs()[1] {
			cancel()
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || len(got.Samples) != 1 {
		t.Fatalf("%d samples and %v, want 1 and %v", len(got.Samples), err, context.Canceled)
	}
	got, runs, err := execute(t.Context(), t, name, nil)
	must.OK(t, err)
	if diff := cmp.Diff(planIDs()[1:], runs); diff != "" {
		t.Errorf("runs of the second execution (-want +got):\n%s", diff)
	}
	if len(got.Samples) != 4 {
		t.Errorf("%d samples, want 4", len(got.Samples))
	}
}

func TestFailedRunDoesNotEndTheOthers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "samples.jsonl")
	fails := planIDs()[1]
	got, _, err := execute(t.Context(), t, name, func(id string, _ *record.Sample) error {
		if id == fails {
			return errors.New("broken")
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "1 runs failed") {
		t.Fatalf("run = %v, want an error that counts the failed run", err)
	}
	i := slices.IndexFunc(got.Samples, func(s record.Sample) bool { return s.ID() == fails })
	if s := got.Samples[i]; len(got.Samples) != 4 || s.Failed != "broken" || s.Metrics != nil {
		t.Errorf("failed sample = %+v, want it without numbers among 4", s)
	}
	if _, runs, err := execute(t.Context(), t, name, nil); err != nil || len(runs) != 1 {
		t.Errorf("the second execution took %v, %v; want the failed run alone", runs, err)
	}
}
