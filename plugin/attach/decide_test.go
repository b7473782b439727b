// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// decide asks for one direction in a world.
func decide(t *testing.T, w *world, d terms.Direction, l *shaping.Limit, replace bool,
) (*attach.DirectionState, attach.Choice, error) {
	t.Helper()
	return decideAs(t, w, d, l, func(r *attach.Request) { r.ReplaceQdisc = replace })
}

// decideStrictly asks for nothing but what is named.
func decideStrictly(t *testing.T, w *world, d terms.Direction, l *shaping.Limit) error {
	t.Helper()
	_, _, err := decideAs(t, w, d, l, func(r *attach.Request) { r.Strict = true })
	return err
}

func decideAs(t *testing.T, w *world, d terms.Direction, l *shaping.Limit, change func(*attach.Request),
) (*attach.DirectionState, attach.Choice, error) {
	t.Helper()
	cfg := &shaping.Config{Egress: l}
	if d == terms.Ingress {
		cfg = &shaping.Config{Ingress: l}
	}
	obs, err := w.Observe(&attach.Record{})
	if err != nil {
		t.Fatal(err)
	}
	major := uint16(0x200)
	req := &attach.Request{
		Interface: w.iface, Config: cfg, Facts: w.facts, TCX: w.tcx,
		Random: func() uint16 { major++; return major },
	}
	change(req)
	want, choices, err := attach.Decide(req, obs)
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

func TestDecideForeignRoot(t *testing.T) {
	for _, d := range terms.Directions {
		side := terms.SidePod
		if d == terms.Ingress {
			side = terms.SideHost
		}
		w := newWorld()
		foreignRoot(w, side)
		s, choice, err := decide(t, w, d, limit(10_000_000), false)
		if err != nil {
			t.Fatal(err)
		}
		policed := s.Params.Queue == terms.QueueNone && s.Params.Tree == nil && choice.Queue == terms.QueueNone
		moved := s.Params.Queue == terms.QueueTBF && s.Params.Side == terms.SideIFB && s.Params.Redirect &&
			choice.Place == terms.PlaceIFB
		if policed != (d == terms.Egress) || moved != (d == terms.Ingress) ||
			!strings.Contains(strings.Join(s.Params.Notes, "\n"), "sfq 8001: on "+w.devices[side].Name) {
			t.Errorf("%v, queue auto: %+v with notes %q, want policing of egress, ingress on an ifb, and a note that names the qdisc",
				d, s.Params, s.Params.Notes)
		}
		l := limit(10_000_000)
		l.Queue = terms.QueueTBF
		if err = decideStrictly(t, w, d, l); !errors.Is(err, attach.ErrForeignQdisc) ||
			!strings.Contains(err.Error(), "sfq 8001:") || !strings.Contains(err.Error(), d.String()) {
			t.Errorf("%v, queue tbf: %v, want ErrForeignQdisc with direction and qdisc", d, err)
		}
		if s, _, err = decide(t, w, d, l, true); err != nil || s.Params.Queue != terms.QueueTBF {
			t.Errorf("%v, with the operator's word: %v, want the queue", d, err)
		}
	}
}

// Policing is what is left where no ifb is found either, whatever the reason.
func TestDecideForeignRootWithoutIFB(t *testing.T) {
	for name, lacks := range map[string]func(*world){
		"the kernel has none": func(w *world) { w.facts.IFB = false },
		"a netfilter chain":   func(w *world) { w.devices[terms.SidePod].NetfilterIngress = true },
	} {
		w := newWorld()
		foreignRoot(w, terms.SideHost)
		lacks(w)
		s, choice, err := decide(t, w, terms.Ingress, limit(10_000_000), false)
		if err != nil {
			t.Fatal(err)
		}
		if s.Params.Queue != terms.QueueNone || s.Params.Redirect || choice.Place != 0 {
			t.Errorf("%s: %v, redirect %v, place %v; want policing", name, s.Params.Queue, s.Params.Redirect, choice.Place)
		}
	}
}

// What an earlier attachment left on our own ifb is in nobody's way.
func TestDecideRootOnTheIFB(t *testing.T) {
	w := newWorld()
	w.devices[terms.SideIFB] = &attach.Device{Exists: true, Index: 7, Name: "podweir5"}
	foreignRoot(w, terms.SideIFB)
	l := limit(10_000_000)
	l.Place, l.Queue = terms.PlaceIFB, terms.QueueTBF
	if _, _, err := decide(t, w, terms.Ingress, l, false); err != nil {
		t.Errorf("Decide = %v, want the ifb taken over", err)
	}
}

func TestDecideNetfilterIngress(t *testing.T) {
	w := newWorld()
	w.devices[terms.SidePod].NetfilterIngress = true
	l := limit(10_000_000)
	l.Place = terms.PlaceIFB
	s, _, err := decide(t, w, terms.Ingress, l, false)
	if err != nil {
		t.Fatal(err)
	}
	if s.Params.Queue != terms.QueueNone || s.Params.Redirect || s.Params.Side != terms.SidePod ||
		!strings.Contains(strings.Join(s.Params.Notes, "\n"), "netfilter ingress chain on eth0") {
		t.Errorf("behind a netfilter chain: %v redirect %v notes %q, want policing that says why",
			s.Params.Queue, s.Params.Redirect, s.Params.Notes)
	}
	l.Queue = terms.QueueTBF
	if err := decideStrictly(t, w, terms.Ingress, l); !errors.Is(err, attach.ErrHookTaken) {
		t.Errorf("with the queue requested by name: %v, want ErrHookTaken", err)
	}
	// Nothing is redirected: the chain is in nobody's way.
	if s, _, err := decide(t, w, terms.Ingress, limit(10_000_000), false); err != nil || s.Params.Queue != terms.QueueTBF {
		t.Errorf("at the host side: %v, want the queue", err)
	}
}

func TestDecideHookKind(t *testing.T) {
	other := func(k terms.HookKind, h terms.Hook) attach.HookProgram {
		return attach.HookProgram{Kind: k, Hook: h, ProgramID: 7, Name: "cil_from_container"}
	}
	tests := []struct {
		name  string
		d     terms.Direction
		mode  terms.Mode
		queue terms.Queue
		side  terms.Side
		other attach.HookProgram
		noTCX bool
		want  terms.HookKind
		err   error
	}{
		{name: "pod side, nobody there", d: terms.Egress, side: terms.SidePod, want: terms.HookKindClsact},
		{
			name: "pod side, somebody's TCX program", d: terms.Egress, side: terms.SidePod,
			other: other(terms.HookKindTCX, terms.HookEgress), want: terms.HookKindTCX,
		},
		{
			name: "pod side, somebody on the other hook", d: terms.Egress, side: terms.SidePod,
			other: other(terms.HookKindClsact, terms.HookIngress), want: terms.HookKindClsact,
		},
		{
			name: "pod side, somebody's filter", d: terms.Egress, side: terms.SidePod,
			other: other(terms.HookKindClsact, terms.HookEgress), want: terms.HookKindTCX,
		},
		{name: "host side, nobody there", d: terms.Ingress, side: terms.SideHost, want: terms.HookKindClsact},
		{
			name: "host side, somebody's filter", d: terms.Ingress, side: terms.SideHost,
			other: other(terms.HookKindClsact, terms.HookEgress), want: terms.HookKindTCX,
		},
		{name: "host side without TCX", d: terms.Ingress, side: terms.SideHost, noTCX: true, want: terms.HookKindClsact},
		{
			name: "a filter of another party and no TCX", d: terms.Egress, side: terms.SidePod,
			other: other(terms.HookKindClsact, terms.HookEgress), noTCX: true, err: attach.ErrHookTaken,
		},
		{
			name: "clsact requested beside a filter", d: terms.Egress, mode: terms.ModeClsactPodSide, side: terms.SidePod,
			other: other(terms.HookKindClsact, terms.HookEgress), err: attach.ErrHookTaken,
		},
		{
			name: "clsact requested behind a TCX program", d: terms.Ingress, mode: terms.ModeClsactHostSide, side: terms.SideHost,
			other: other(terms.HookKindTCX, terms.HookEgress), err: attach.ErrHookTaken,
		},
		{name: "clsact requested", d: terms.Ingress, mode: terms.ModeClsactHostSide, side: terms.SideHost, want: terms.HookKindClsact},
		{name: "policing at pod-side ingress", d: terms.Ingress, mode: terms.ModeTCXPodSide, side: terms.SidePod, want: terms.HookKindTCX},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.tcx = !tt.noTCX
			if tt.other.Name != "" {
				w.devices[tt.side].Hooks = []attach.HookProgram{tt.other}
			}
			l := limit(10_000_000)
			l.Mode, l.Queue = cmp.Or(tt.mode, l.Mode), cmp.Or(tt.queue, l.Queue)
			if tt.err != nil {
				err := decideStrictly(t, w, tt.d, l)
				if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), "cil_from_container") {
					t.Fatalf("Decide = %v, want %v naming the other program", err, tt.err)
				}
				return
			}
			s, _, err := decide(t, w, tt.d, l, false)
			if err != nil {
				t.Fatal(err)
			}
			if s.HookKind != tt.want || s.Params.Side != tt.side {
				t.Errorf("Decide = %v on the %v side, want %v on the %v side", s.HookKind, s.Params.Side, tt.want, tt.side)
			}
		})
	}
	w := newWorld()
	w.tcx = false
	l := limit(10_000_000)
	l.Mode = terms.ModeTCXPodSide
	if err := decideStrictly(t, w, terms.Egress, l); err == nil || !strings.Contains(err.Error(), "no TCX") {
		t.Errorf("tcx-podside without TCX = %v, want an error that says so", err)
	}
}

func TestDecideRemembersClsact(t *testing.T) {
	w := newWorld()
	_, choice, err := decide(t, w, terms.Egress, limit(10_000_000), false)
	if err != nil || !slices.Equal(choice.MadeClsact, []terms.Side{terms.SidePod, terms.SideHost}) {
		t.Errorf("made clsact on %v, %v, want both sides", choice.MadeClsact, err)
	}
	w.devices[terms.SidePod].Clsact, w.devices[terms.SideHost].Clsact = true, true
	_, choice, err = decide(t, w, terms.Egress, limit(10_000_000), false)
	if err != nil || len(choice.MadeClsact) != 0 {
		t.Errorf("made clsact on %v, %v, want none: it was there", choice.MadeClsact, err)
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
		"somebody's filter":     {(*world).policy, terms.HookKindTCX, ""},
		"that and no TCX":       {func(w *world, l *shaping.Limit) { w.policy(l); w.tcx = false }, 0, `clsact filter "handle_egress" on ingress of veth1`},
		"no host side":          {func(w *world, _ *shaping.Limit) { delete(w.devices, terms.SideHost) }, 0, "no other end on the host"},
		"it is switched off":    {func(_ *world, l *shaping.Limit) { l.NoCeiling = true }, 0, ""},
		"light flows are free":  {func(_ *world, l *shaping.Limit) { l.Policy = terms.PolicyElephants }, 0, "under elephants"},
		"netkit":                {func(w *world, _ *shaping.Limit) { w.facts.EgressPastHost = true }, 0, "may go past the host side"},
		"the limit is up there": {func(_ *world, l *shaping.Limit) { l.Mode = terms.ModeTCXHostSide }, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, l := newWorld(), limit(10_000_000)
			tt.change(w, l)
			state, _, err := decide(t, w, terms.Egress, l, false)
			if err != nil {
				t.Fatal(err)
			}
			if state.CeilingKind != tt.want || state.Params.Ceiling != (tt.want != 0) {
				t.Errorf("a ceiling: %v by %v, want %v", state.Params.Ceiling, state.CeilingKind, tt.want)
			}
			if notes := strings.Join(state.Params.Notes, "; "); !strings.Contains(notes, tt.note) || tt.note == "" && strings.Contains(notes, "ceiling") {
				t.Errorf("notes %q, want %q", notes, tt.note)
			}
		})
	}
}

// policy puts somebody's program where the ceiling would be.
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
			states, err := w.engine().Ensure(t.Context(), wantOf(cfg))
			if err != nil {
				t.Fatal(err)
			}
			in, out := states[0].Directions[terms.Ingress], states[0].Directions[terms.Egress]
			if is := fmt.Sprintf("%v, %v; guard %v", in.Params.Side, in.HookKind, out.GuardKind); is != tt.want {
				t.Errorf("ingress is on the side, and its program by %s, want %s", is, tt.want)
			}
			for _, h := range w.devices[terms.SidePod].Hooks {
				if h.Kind == terms.HookKindClsact {
					t.Errorf("%s is a filter on the pod side", h.Name)
				}
			}
			if notes := strings.Join(append(in.Params.Notes, out.Params.Notes...), "; "); !strings.Contains(notes, tt.notes) {
				t.Errorf("notes %q, want %q", notes, tt.notes)
			}
			if err := w.engine().Check(t.Context(), wantOf(cfg)); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			inspected, err := w.engine().Inspect(record(t, w))
			if err != nil || (out.Params.NoGuard != "") != slices.ContainsFunc(inspected.Degraded, func(d attach.Degradation) bool { return strings.HasPrefix(d.Reason, "no guard") }) {
				t.Errorf("degraded %+v, %v, want the guard that is missing", inspected, err)
			}
		})
	}
}

// Where another party redirects what comes to the pod's device, nothing is redirected to an
// ifb, though nobody said so.
func TestDecideBesideARedirect(t *testing.T) {
	w := newWorld()
	w.facts.Prio = true
	w.devices[terms.SidePod].Clsact, w.devices[terms.SidePod].IngressOnly = true, true
	w.devices[terms.SidePod].Hooks = []attach.HookProgram{{Kind: terms.HookKindClsact, Hook: terms.HookIngress, FilterKind: "u32", Pref: 49152, RedirectIndex: 9}}
	cfg := both(10_000_000)
	cfg.Ingress.Place = terms.PlacePreferIFB
	states, err := w.engine().Ensure(t.Context(), wantOf(cfg))
	if err != nil {
		t.Fatal(err)
	}
	in, out := states[0].Directions[terms.Ingress], states[0].Directions[terms.Egress]
	if in.Params.Side != terms.SidePod || in.HookKind != terms.HookKindTCX || out.GuardKind != terms.HookKindTCX {
		t.Errorf("ingress on the %v side by %v, the guard by %v, want all by TCX in the pod", in.Params.Side, in.HookKind, out.GuardKind)
	}
	if notes := strings.Join(in.Params.Notes, "; "); !strings.Contains(notes, "u32 filter at preference 49152 on the pod's device redirects") {
		t.Errorf("notes %q, want who redirects", notes)
	}
}

// Where the operator says so, nothing of podweir's is a filter on the host side.
// Without TCX the queue whose program would be one stands on an ifb, or gives way to
// policing in the pod.
func TestDecideHostTCX(t *testing.T) {
	for name, tt := range map[string]struct {
		tcx, noIFB bool
		want       string
	}{
		"TCX":        {tcx: true, want: "tcx on the host side and tcx"},
		"no TCX":     {want: "clsact on the ifb side and auto"},
		"nor an ifb": {noIFB: true, want: "clsact on the pod side and auto"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			cfg := both(10_000_000)
			ensure(t, w, cfg) // as filters
			w.tcx, w.facts.IFB = tt.tcx, !tt.noIFB
			cfg.HostTCX = true
			states, err := w.engine().Ensure(t.Context(), wantOf(cfg))
			if err != nil {
				t.Fatal(err)
			}
			in, out := states[0].Directions[terms.Ingress], states[0].Directions[terms.Egress]
			ceiling := terms.HookKindAuto
			if out.Params.Ceiling {
				ceiling = out.CeilingKind
			}
			if is := fmt.Sprintf("%v on the %v side and %v", in.HookKind, in.Params.Side, ceiling); is != tt.want {
				t.Errorf("the program and the ceiling are by %s, want %s", is, tt.want)
			}
			for _, h := range w.devices[terms.SideHost].Hooks {
				if h.Kind == terms.HookKindClsact {
					t.Errorf("%s is a filter on the host side", h.Name)
				}
			}
			notes := strings.Join(in.Params.Notes, "; ")
			if told := strings.Contains(notes, "hostHook is tcx, and the kernel has no TCX"); told == tt.tcx {
				t.Errorf("notes of ingress: %q", notes)
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
		s, choice, err := decide(t, w, terms.Ingress, limit(10_000_000), false)
		if err != nil {
			t.Fatal(err)
		}
		if s.Params.Side != want || !strings.Contains(choice.Note, "handle_ingress") {
			t.Errorf("without an ifb %v: ingress on the %v side, %q, want the %v side and who is on the hook", noIFB, s.Params.Side, choice.Note, want)
		}
	}
}
