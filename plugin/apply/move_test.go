// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	stdcmp "cmp"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// limitsIngress says that packets on their way into the pod meet a queue of podweir's.
func (w *world) limitsIngress() bool {
	ifb := w.devices[terms.SideIFB]
	return w.devices[terms.SideHost].OwnTree ||
		w.has("pw_redirect") && ifb != nil && ifb.OwnTree && w.dataplanes[terms.Ingress].RedirectIndex == ifb.Index
}

// The new queue of ingress is there before the old one goes, wherever it moves. What an
// interrupted move left is brought to its end.
func TestQueueMovesBehindItsSuccessor(t *testing.T) {
	at := func(place terms.Place, p terms.Policy) *shaping.Config {
		cfg := both(100_000_000)
		cfg.Ingress.Place, cfg.Ingress.Policy = place, stdcmp.Or(p, cfg.Ingress.Policy)
		return cfg
	}
	foreign := func(w *world) { foreignRoot(w, terms.SideHost) }
	lifted := func(w *world) { w.devices[terms.SideHost].Tree = shaping.Tree{} }
	for name, tt := range map[string]struct {
		from, to      terms.Place
		policy        terms.Policy
		first, second func(*world)
	}{
		"to an ifb":               {from: terms.PlaceHost, to: terms.PlaceIFB},
		"from an ifb":             {from: terms.PlaceIFB, to: terms.PlaceHost},
		"flat, to an ifb":         {from: terms.PlaceHost, to: terms.PlaceIFB, policy: terms.PolicyFlat},
		"flat, from an ifb":       {from: terms.PlaceIFB, to: terms.PlaceHost, policy: terms.PolicyFlat},
		"another's root was here": {first: foreign, second: lifted},
	} {
		t.Run(name, func(t *testing.T) {
			start := func() *world {
				w := newWorld()
				if tt.first != nil {
					tt.first(w)
				}
				ensure(t, w, at(tt.from, tt.policy))
				if tt.second != nil {
					tt.second(w)
				}
				return w
			}
			fresh := newWorld()
			ensure(t, fresh, at(tt.to, tt.policy))
			w := start()
			e, steps := w.executor(), []string{}
			e.Drifted = func(_ attach.ID, plan []attach.Action) { t.Errorf("told as the doing of another party: %v", plan) }
			e.Step = func(step string) {
				if steps = append(steps, step); !w.limitsIngress() {
					t.Errorf("nothing limits ingress at %q, after %q", step, steps)
				}
			}
			if _, err := e.Ensure(t.Context(), wantOf(at(tt.to, tt.policy))); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fresh.shape(), w.shape()); diff != "" {
				t.Errorf("differs from a pod that began there (-began +moved): %s", diff)
			}
			must.OK(t, w.executor().Check(t.Context(), wantOf(at(tt.to, tt.policy))))

			for kind := attach.MakeIFB; kind <= attach.TearDown; kind++ {
				if !slices.Contains(steps, "ingress "+kind.String()) {
					continue
				}
				w := start()
				w.failAt = kind
				if _, err := w.executor().Ensure(t.Context(), wantOf(at(tt.to, tt.policy))); !errors.Is(err, errBoom) {
					t.Fatalf("Ensure that ends with %v = %v", kind, err)
				}
				w.failAt = 0
				ensure(t, w, at(tt.to, tt.policy))
				if diff := cmp.Diff(fresh.shape(), w.shape()); diff != "" {
					t.Errorf("ended after %v, and done again, it differs (-began +moved): %s", kind, diff)
				}
			}
		})
	}
}
