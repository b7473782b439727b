// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// A limit that is observed only has a program and no queue, and is as it should be so.
// It changes to an enforced limit and back without a rest.
func TestObserveAndEnforce(t *testing.T) {
	w := newWorld()
	foreignRoot(w, terms.SideHost) // which is no obstacle for what makes no queue
	cfg := both(10_000_000)
	cfg.Observe = true
	observed := func(what string) {
		t.Helper()
		pod := w.devices[terms.SidePod]
		if pod.Root() != nil || len(pod.Hooks) != 2 || len(w.devices[terms.SideHost].Hooks) != 0 {
			t.Errorf("%s: the pod's device has %+v, want a program for each direction and no queue", what, pod)
		}
		for _, h := range pod.Hooks {
			if h.Name != "pw_police" {
				t.Errorf("%s: %s is on the %v hook, want pw_police", what, h.Name, h.Hook)
			}
		}
		if in, err := w.engine().Inspect(record(t, w)); err != nil || len(in.Plan) != 0 || len(in.Degraded) != 0 {
			t.Errorf("%s: %+v, %v, want no step", what, in, err)
		}
	}
	ensure(t, w, cfg)
	observed("at first")
	w.devices[terms.SideHost].Tree = shaping.Tree{}
	e := w.engine()
	e.Drifted = func(_ attach.ID, plan []attach.Action) { t.Errorf("told of drift: %v", plan) }

	enforced := both(10_000_000)
	if err := e.Check(t.Context(), wantOf(enforced)); err == nil || !strings.Contains(err.Error(), "to be enforced, and was observed only") {
		t.Errorf("CHECK of a limit that is only observed = %v, want the difference in words", err)
	}
	if _, err := e.Ensure(t.Context(), wantOf(enforced)); err != nil {
		t.Fatal(err)
	}
	for _, side := range []terms.Side{terms.SidePod, terms.SideHost} {
		if w.devices[side].Root() == nil {
			t.Errorf("enforced: the %v side has no queue", side)
		}
	}
	ceiling := slices.ContainsFunc(w.devices[terms.SideHost].Hooks, func(h attach.HookProgram) bool { return h.Name == "pw_ceiling" })
	if !ceiling || w.has("pw_police") {
		t.Errorf("enforced: a ceiling is %v, a policer in the pod %v, want the one and not the other", ceiling, w.has("pw_police"))
	}
	if _, err := e.Set(t.Context(), podID, func(c *shaping.Config) error { c.Observe = true; return nil }); err != nil {
		t.Fatal(err)
	}
	observed("after set")
	if _, err := e.Clear(t.Context(), podID); err != nil || w.devices[terms.SidePod].Root() == nil {
		t.Errorf("Clear = %v, want the queue again", err)
	}
}

// A slot that says another thing than the wish is a difference, told in words.
func TestObserveIsComparedWithTheSlot(t *testing.T) {
	w := newWorld()
	cfg := both(10_000_000)
	cfg.Observe = true
	ensure(t, w, cfg)
	w.dataplanes[terms.Egress].Datapath.Observe = false
	in, err := w.engine().Inspect(record(t, w))
	if err != nil || len(in.Plan) != 1 || in.Plan[0].Kind != attach.UpdateDataplane || !strings.Contains(in.Plan[0].Reason, "observed only is false, want true") {
		t.Fatalf("plan %v, %v, want to update the slot", in.Plan, err)
	}
	if _, err := w.engine().Repair(t.Context(), podID); err != nil || !w.dataplanes[terms.Egress].Datapath.Observe {
		t.Errorf("Repair = %v, slot %+v, want it observed", err, w.dataplanes[terms.Egress])
	}
}
