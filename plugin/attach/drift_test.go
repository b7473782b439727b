// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// What was taken away in the pod is told, and put back where it was.
func TestDriftIsToldAndPutBack(t *testing.T) {
	w := newWorld()
	ensure(t, w, both(10_000_000))
	e, told := w.engine(), 0
	e.Drifted = func(id attach.ID, plan []attach.Action) {
		if id != podID || !slices.ContainsFunc(plan, func(a attach.Action) bool { return a.InPod() }) {
			t.Errorf("Drifted(%v, %v), want the queue in the pod", id, plan)
		}
		told++
	}
	if _, err := e.Repair(t.Context(), podID); err != nil || told != 0 {
		t.Fatalf("Repair of what is in order = %v, told of drift %d times", err, told)
	}
	for i := range 5 {
		w.devices[terms.SidePod].Tree = shaping.Tree{}
		if _, err := e.Repair(t.Context(), podID); err != nil || told != i+1 {
			t.Fatalf("Repair = %v, told of drift %d times, want %d", err, told, i+1)
		}
		if len(w.devices[terms.SidePod].Tree.Qdiscs) == 0 {
			t.Error("the queue was not put back")
		}
	}
}

// What is changed because the wish changed, or because of another release, is nobody's
// doing.
func TestDriftIsWhatSomebodyElseDid(t *testing.T) {
	for name, change := range map[string]func(*world, *shaping.Config){
		"another rate":  func(_ *world, c *shaping.Config) { c.Egress.Rate *= 2 },
		"another queue": func(_ *world, c *shaping.Config) { c.Egress.Queue = terms.QueueNone },
		"another build": func(w *world, _ *shaping.Config) { w.outdate() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			ensure(t, w, both(10_000_000))
			cfg := both(10_000_000)
			change(w, cfg)
			e := w.engine()
			e.Drifted = func(_ attach.ID, plan []attach.Action) { t.Errorf("told of drift: %v", plan) }
			if _, err := e.Ensure(t.Context(), wantOf(cfg)); err != nil && !errors.Is(err, errBoom) {
				t.Fatal(err)
			}
		})
	}
}
