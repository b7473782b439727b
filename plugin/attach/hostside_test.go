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

// besieged takes the pod's egress queue away and repairs, with somebody who wants the
// direction on the host side as soon as that is told.
func besieged(t *testing.T, w *world) (*attach.Engine, *bool) {
	t.Helper()
	e, away := w.engine(), false
	e.Drifted = func(id attach.ID, plan []attach.Action) {
		if id != podID || !slices.ContainsFunc(plan, func(a attach.Action) bool { return a.InPod() }) {
			t.Errorf("Drifted(%v, %v), want the queue in the pod", id, plan)
		}
		away = true
	}
	e.HostSide = func(_ attach.ID, d terms.Direction, _ bool) bool { return away && d == terms.Egress }
	return e, &away
}

// What is taken away in the pod is policed on the host side and not made again there;
// everybody takes that for what should be, until it goes back.
func TestEgressMovesToTheHostSide(t *testing.T) {
	for name, tcx := range map[string]bool{"with TCX": true, "without TCX": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.tcx = tcx
			ensure(t, w, both(10_000_000))
			e, away := besieged(t, w)
			if _, err := e.Repair(t.Context(), podID); err != nil || *away {
				t.Fatalf("Repair of what is in order = %v, told of drift: %v", err, *away)
			}
			w.devices[terms.SidePod].Tree = shaping.Tree{}
			states, err := e.Repair(t.Context(), podID)
			if err != nil {
				t.Fatal(err)
			}
			out := states[0].Directions[terms.Egress]
			if p := out.Params; !out.HostSide || p.Side != terms.SideHost || p.Queue != terms.QueueNone || p.Rate != 10_000_000 {
				t.Errorf("egress is %+v, want policing on the host side", p)
			}
			kind := map[bool]terms.HookKind{true: terms.HookKindTCX, false: terms.HookKindClsact}[tcx]
			if out.HookKind != kind {
				t.Errorf("hook kind %v, want %v", out.HookKind, kind)
			}
			if in := states[0].Directions[terms.Ingress]; in.HostSide || in.Params.Queue != terms.QueueTBF {
				t.Errorf("ingress is %+v, want it where it was", in.Params)
			}
			if len(w.devices[terms.SidePod].Tree.Qdiscs) != 0 {
				t.Error("the queue was made in the pod again")
			}
			// Neither CHECK nor a repair by somebody else moves it.
			if err := w.engine().Check(t.Context(), wantOf(both(10_000_000))); err != nil {
				t.Errorf("CHECK = %v, want nil", err)
			}
			if states, err = w.engine().Repair(t.Context(), podID); err != nil || !states[0].Directions[terms.Egress].HostSide {
				t.Errorf("another repair: %v, want egress on the host side", err)
			}
			*away = false
			if states, err = e.Repair(t.Context(), podID); err != nil {
				t.Fatal(err)
			}
			if p := states[0].Directions[terms.Egress].Params; p.Side != terms.SidePod || p.Queue != terms.QueueTBF {
				t.Errorf("afterwards egress is %+v, want the queue in the pod", p)
			}
			if slices.ContainsFunc(w.devices[terms.SideHost].Hooks, func(h attach.HookProgram) bool { return h.Name == "pw_police" }) {
				t.Errorf("%v are left on the host side", w.devices[terms.SideHost].Hooks)
			}
			if err := w.engine().Check(t.Context(), wantOf(both(10_000_000))); err != nil || *away {
				t.Errorf("CHECK = %v, told of drift: %v", err, *away)
			}
		})
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

// A queue that was changed and not removed goes with the move, and what polices on the
// host side goes with the way back: the queue alone keeps a limit without bands.
func TestNothingStaysBehindAMove(t *testing.T) {
	w := newWorld()
	cfg := both(10_000_000)
	cfg.Egress.Policy = terms.PolicyFlat
	ensure(t, w, cfg)
	e, away := besieged(t, w)
	pod := w.devices[terms.SidePod]
	pod.Tree.Qdiscs[0].Rate *= 10
	if _, err := e.Repair(t.Context(), podID); err != nil || !*away {
		t.Fatalf("Repair = %v, told of drift: %v", err, *away)
	}
	if len(pod.Tree.Qdiscs) != 0 {
		t.Errorf("%v is left in the pod", pod.Tree.Qdiscs)
	}
	*away = false
	if _, err := e.Repair(t.Context(), podID); err != nil || *away {
		t.Fatalf("Repair = %v, told of drift: %v", err, *away)
	}
	if len(pod.Tree.Qdiscs) == 0 || slices.ContainsFunc(w.devices[terms.SideHost].Hooks, func(h attach.HookProgram) bool { return h.Name == "pw_police" }) {
		t.Errorf("the pod has %v and the host side %v, want the queue alone", pod.Tree.Qdiscs, w.devices[terms.SideHost].Hooks)
	}
}
