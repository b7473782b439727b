// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// decide asks for one direction in a world.
func decide(t *testing.T, w *world, d terms.Direction, l *shaping.Limit) (*attach.DirectionState, attach.Choice, error) {
	t.Helper()
	cfg := &shaping.Config{Egress: l}
	if d == terms.Ingress {
		cfg = &shaping.Config{Ingress: l}
	}
	obs := must.Get(w.Observe(&apply.Record{}))(t)
	major := uint16(0x200)
	want, choices, err := attach.Decide(&attach.Request{
		Interface: w.iface, Config: cfg, Facts: w.facts, TCX: w.tcx,
		Random: func() uint16 { major++; return major },
	}, obs)
	if err != nil {
		return nil, attach.Choice{}, err
	}
	return want.Directions[d], choices[d], nil
}

func foreignRoot(w *world, s terms.Side) {
	w.devices[s].OwnTree = false
	w.devices[s].Tree = shaping.Tree{Qdiscs: []shaping.Qdisc{
		{Kind: "sfq", Handle: 0x80010000, Parent: shaping.RootParent},
	}}
}

// What an earlier attachment left on our own ifb is in nobody's way.
func TestDecideRootOnTheIFB(t *testing.T) {
	w := newWorld()
	w.devices[terms.SideIFB] = &attach.Device{Exists: true, Index: 7, Name: "podweir5"}
	foreignRoot(w, terms.SideIFB)
	l := limit(10_000_000)
	l.Place, l.Queue = terms.PlaceIFB, terms.QueueTBF
	if s, choice, err := decide(t, w, terms.Ingress, l); err != nil || s.Params.Side != terms.SideIFB || choice.Settled {
		t.Errorf("Decide = %+v, %v, want the ifb taken over", s, err)
	}
}

// What keeps the ceiling away costs the pod nothing but the ceiling.
func TestDecideCeiling(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *world, l *shaping.Limit)
		want   terms.HookKind
		note   string
	}{
		"as a rule":             {func(*world, *shaping.Limit) {}, terms.HookKindClsact, ""},
		"no TCX":                {func(w *world, _ *shaping.Limit) { w.tcx = false }, terms.HookKindClsact, ""},
		"a foreign filter":      {(*world).policy, terms.HookKindTCX, ""},
		"that and no TCX":       {func(w *world, l *shaping.Limit) { w.policy(l); w.tcx = false }, 0, `clsact filter "handle_egress" on ingress of veth1`},
		"a block":               {func(w *world, _ *shaping.Limit) { w.block() }, terms.HookKindTCX, ""},
		"that and no tcx":       {func(w *world, _ *shaping.Limit) { w.block(); w.tcx = false }, 0, "ingress of veth1 has the filters of tc block 7"},
		"no host side":          {func(w *world, _ *shaping.Limit) { delete(w.devices, terms.SideHost) }, 0, "no other end on the host"},
		"it is switched off":    {func(_ *world, l *shaping.Limit) { l.NoCeiling = true }, 0, ""},
		"light flows are free":  {func(_ *world, l *shaping.Limit) { l.Policy = terms.PolicyElephants }, 0, "under elephants"},
		"netkit":                {func(w *world, _ *shaping.Limit) { w.facts.PastHost = true }, 0, "may go past the host side"},
		"the limit is up there": {func(_ *world, l *shaping.Limit) { l.Mode = terms.ModeTCXHostSide }, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, l := newWorld(), limit(10_000_000)
			tt.change(w, l)
			state, _, err := decide(t, w, terms.Egress, l)
			must.OK(t, err)
			if state.CeilingKind != tt.want || state.Params.Ceiling != (tt.want != 0) {
				t.Errorf("a ceiling: %v by %v, want %v", state.Params.Ceiling, state.CeilingKind, tt.want)
			}
			if notes := strings.Join(state.Params.Notes, "; "); !strings.Contains(notes, tt.note) || tt.note == "" && strings.Contains(notes, "ceiling") {
				t.Errorf("notes %q, want %q", notes, tt.note)
			}
		})
	}
}

// block gives the ingress hooks of the pair the filters of a tc block.
func (w *world) block() {
	for _, s := range []terms.Side{terms.SidePod, terms.SideHost} {
		w.devices[s].Clsact, w.devices[s].Blocks.Ingress = true, 7
	}
}

// policy puts a foreign program where the ceiling would be.
func (w *world) policy(*shaping.Limit) {
	w.devices[terms.SideHost].Hooks = []attach.HookProgram{
		{Kind: terms.HookKindClsact, Hook: terms.HookIngress, ProgramID: 77, Name: "handle_egress", Pref: 1},
	}
}

// With podHook tcx nothing of podweir's is a filter on the pod side, and nothing is
// redirected there, whatever the place; running pods are moved. Without TCX the guard and
// what needs a program in the pod is left out, with the reason.
func TestDecidePodTCX(t *testing.T) {
	for name, tt := range map[string]struct {
		noTCX, ingressOnly bool
		place              terms.Place
		want               string
		notes              string
	}{
		"host":                     {want: "host, auto; guard tcx"},
		"ifb":                      {place: terms.PlacePreferIFB, want: "pod, tcx; guard tcx", notes: "podHook is tcx"},
		"ifb by name":              {place: terms.PlaceIFB, want: "pod, tcx; guard tcx", notes: "podHook is tcx"},
		"no TCX":                   {noTCX: true, want: "host, auto; guard invalid(0)", notes: "no guard: podHook is tcx, and the kernel has no TCX"},
		"no TCX, an ingress qdisc": {noTCX: true, ingressOnly: true, want: "host, auto; guard invalid(0)", notes: "no guard"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.facts.Prio = true
			cfg := both(10_000_000)
			if tt.place != 0 {
				cfg.Ingress.Place = tt.place
			}
			if !tt.ingressOnly {
				ensure(t, w, cfg) // as filters
			}
			w.tcx = !tt.noTCX
			cfg.PodTCX = !tt.ingressOnly
			w.devices[terms.SidePod].IngressOnly = tt.ingressOnly
			states := must.Get(w.executor().Ensure(t.Context(), wantOf(cfg)))(t)
			in, out := states[0].Directions[terms.Ingress], states[0].Directions[terms.Egress]
			must.Be(t, "ingress", tt.want, fmt.Sprintf("%v, %v; guard %v", in.Params.Side, in.HookKind, out.GuardKind))
			for _, h := range w.devices[terms.SidePod].Hooks {
				if h.Kind == terms.HookKindClsact {
					t.Errorf("%s is a filter on the pod side", h.Name)
				}
			}
			must.Have(t, "what is noted", strings.Join(append(in.Params.Notes, out.Params.Notes...), "; "), tt.notes)
			must.OK(t, w.executor().Check(t.Context(), wantOf(cfg)))
			inspected, err := w.executor().Inspect(record(t, w))
			if err != nil || (out.Params.NoGuard != "") != slices.ContainsFunc(inspected.Degraded, func(d attach.Degradation) bool { return strings.HasPrefix(d.Reason, "no guard") }) {
				t.Errorf("degraded %+v, %v, want the guard that is missing", inspected, err)
			}
		})
	}
}

// A hook that another party holds costs the pod its queue, not its limit.
func TestDecideAroundATakenHook(t *testing.T) {
	w := newWorld()
	w.tcx = false
	w.devices[terms.SideHost].Hooks = []attach.HookProgram{
		{Kind: terms.HookKindClsact, Hook: terms.HookEgress, ProgramID: 77, Name: "handle_ingress", Pref: 1},
	}
	for noIFB, want := range map[bool]terms.Side{false: terms.SideIFB, true: terms.SidePod} {
		w.facts.IFB = !noIFB
		s, choice, err := decide(t, w, terms.Ingress, limit(10_000_000))
		must.OK(t, err)
		if s.Params.Side != want || !strings.Contains(choice.Note, "handle_ingress") {
			t.Errorf("without an ifb %v: ingress on the %v side, %q, want the %v side and who is on the hook", noIFB, s.Params.Side, choice.Note, want)
		}
	}
}
