// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// slowAt is an engine on a machine that stands still before a step, counted from 1, for
// so long that no time is left. stopped is the name of the step.
func slowAt(w *world, step int) (e *attach.Engine, stopped *string) {
	e, stopped = w.engine(), new(string)
	now := time.Now()
	e.Now = func() time.Time { return now }
	e.Step = func(name string) {
		if step--; step == 0 {
			now, *stopped = now.Add(time.Hour), name
		}
	}
	return e, stopped
}

// Whatever step it is too late for, the error names it, and the next run ends as one
// without a delay: nothing stays of what was not there before.
func TestLateAtEveryStep(t *testing.T) {
	inIFB, other := both(10_000_000), both(20_000_000)
	inIFB.Ingress.Place = terms.PlaceIFB
	for name, tc := range map[string]struct {
		first, with *shaping.Config
		// least is the number of steps below which the test tests nothing.
		least int
	}{
		"a first ADD":         {nil, both(10_000_000), 5},
		"a first ADD, an ifb": {nil, inIFB, 6},
		"another limit":       {both(10_000_000), other, 4},
		"to the ifb":          {both(10_000_000), inIFB, 6},
	} {
		t.Run(name, func(t *testing.T) {
			fresh := newWorld()
			ensure(t, fresh, tc.with)
			late := 0
			for step := 1; ; step++ {
				w := newWorld()
				if tc.first != nil {
					ensure(t, w, tc.first)
				}
				e, stopped := slowAt(w, step)
				_, err := e.Ensure(t.Context(), wantOf(tc.with))
				if w.locked || !w.deadline.IsZero() {
					t.Fatalf("step %d: locked %v, deadline %v, want neither", step, w.locked, w.deadline)
				}
				if *stopped == "" {
					break // there are no more steps
				}
				if *stopped != "record" { // writing it is not left out
					late++
					if !errors.Is(err, attach.ErrLate) || !strings.Contains(err.Error(), *stopped) || !strings.Contains(err.Error(), "1h0m0s") {
						t.Errorf("too late for %q: %v, want %v with the step and the time", *stopped, err, attach.ErrLate)
					}
				}
				if diff := cmp.Diff(newWorld().shape(), w.shape()); err != nil && tc.first == nil && (diff != "" || len(w.records) != 0) {
					t.Errorf("too late for %q: %d records stay, and (-untouched +got):\n%s", *stopped, len(w.records), diff)
				}
				ensure(t, w, tc.with)
				if diff := cmp.Diff(fresh.shape(), w.shape()); diff != "" {
					t.Errorf("too late for %q, then again (-without a delay +got):\n%s", *stopped, diff)
				}
			}
			if late < tc.least {
				t.Errorf("it was too late for %d steps, want %d or more: the test looks at nothing", late, tc.least)
			}
		})
	}
}

// A caller that ends does not stop work that has begun: it would be left half done.
func TestEndOfTheCallerLeavesNothingHalfDone(t *testing.T) {
	w := newWorld()
	e := w.engine()
	ctx, cancel := context.WithCancel(t.Context())
	e.Step = func(string) { cancel() }
	if _, err := e.Ensure(ctx, wantOf(both(10_000_000))); err != nil {
		t.Fatal(err)
	}
	if err := e.Check(t.Context(), wantOf(both(10_000_000))); err != nil {
		t.Error(err)
	}
}
