// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// byName is a default of the node that a world cannot have.
type byName struct {
	d      terms.Direction
	change func(*shaping.Limit)
	world  func(*world)
	// queue and side are those of the limit in place of it.
	queue terms.Queue
	side  terms.Side
	told  []string
}

func byNames() map[string]byName {
	filter := func(s terms.Side, h terms.Hook) func(*world) {
		return func(w *world) {
			w.devices[s].Hooks = []attach.HookProgram{{Kind: terms.HookKindClsact, Hook: h, ProgramID: 7, Name: "theirs"}}
		}
	}
	mode := func(m terms.Mode) func(*shaping.Limit) { return func(l *shaping.Limit) { l.Mode = m } }
	return map[string]byName{
		"a mode that the kernel lacks": {
			d: terms.Egress, change: mode(terms.ModeTCXPodSide), world: func(w *world) { w.tcx = false },
			queue: terms.QueueTBF, side: terms.SidePod, told: []string{"not the mode tcx-podside", "no TCX", "auto instead"},
		},
		"policing at a hook that the kernel lacks": {
			d: terms.Egress, change: mode(terms.ModeTCXHostSide), world: func(w *world) { w.tcx = false },
			queue: terms.QueueTBF, side: terms.SidePod, told: []string{"not the mode tcx-hostside", "no TCX"},
		},
		"a hook that another party holds": {
			d: terms.Ingress, change: mode(terms.ModeClsactHostSide), world: filter(terms.SideHost, terms.HookEgress),
			queue: terms.QueueTBF, side: terms.SideHost, told: []string{"not the mode clsact-hostside", `"theirs"`},
		},
		"a queue beside somebody's root qdisc": {
			d: terms.Egress, change: func(l *shaping.Limit) { l.Queue = terms.QueueTBF },
			world: func(w *world) { foreignRoot(w, terms.SidePod) },
			queue: terms.QueueNone, side: terms.SidePod, told: []string{"not the queue tbf", "sfq 8001:"},
		},
		"queues of its own beside somebody's root qdisc": {
			d: terms.Ingress, change: mode(terms.ModeQdisc), world: func(w *world) { foreignRoot(w, terms.SideHost) },
			queue: terms.QueueTBF, side: terms.SideIFB, told: []string{"not the mode qdisc", "sfq 8001:"},
		},
		"a place that the kernel lacks": {
			d: terms.Ingress, change: func(l *shaping.Limit) { l.Place = terms.PlaceIFB },
			world: func(w *world) { w.facts.IFB = false },
			queue: terms.QueueNone, side: terms.SidePod, told: []string{"not the place ifb", "this kernel has no ifb"},
		},
		"a mode without a queue": {
			d: terms.Egress, change: mode(terms.ModeQdisc), world: func(w *world) { w.facts.TBF = false },
			queue: terms.QueueNone, side: terms.SidePod, told: []string{"not the mode qdisc", "no queue for it"},
		},
	}
}

// TestByNameGivesWayToAuto: what the node's defaults name and what is not available
// never leaves a pod without a limit, and is told.
func TestByNameGivesWayToAuto(t *testing.T) {
	for name, tc := range byNames() {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.world(w)
			l := limit(10_000_000)
			tc.change(l)
			s, choice, err := decide(t, w, tc.d, l, false)
			must.OK(t, err)
			if s.Params.Queue != tc.queue || s.Params.Side != tc.side {
				t.Errorf("queue %v on the %v side, want %v on the %v side", s.Params.Queue, s.Params.Side, tc.queue, tc.side)
			}
			if !choice.Settled {
				t.Error("the choices are not told to be of auto")
			}
			for where, notes := range map[string][]string{"declined": s.Params.Declined, "notes": s.Params.Notes} {
				for _, part := range tc.told {
					if !strings.Contains(strings.Join(notes, "\n"), part) {
						t.Errorf("%s %q, want %q in it", where, notes, part)
					}
				}
			}
			if err := decideStrictly(t, w, tc.d, l); err == nil {
				t.Error("strictly: no error, want one for what was named by hand")
			}
		})
	}
}

// TestByNameIsTriedAgain: done twice it changes nothing, and when what was named is
// available, the next look takes it and leaves nothing of the other.
func TestByNameIsTriedAgain(t *testing.T) {
	for name, tc := range byNames() {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			before := *w.devices[terms.SidePod]
			host, facts := *w.devices[terms.SideHost], w.facts
			tc.world(w)
			l := limit(10_000_000)
			tc.change(l)
			cfg := &shaping.Config{Egress: l}
			if tc.d == terms.Ingress {
				cfg = &shaping.Config{Ingress: l}
			}
			ensure(t, w, cfg)
			w.log = nil
			ensure(t, w, cfg)
			if err := w.engine().Check(t.Context(), wantOf(cfg)); err != nil || len(w.log) != 0 {
				t.Errorf("a second time: did %v, Check = %v, want nothing and nil", w.log, err)
			}
			w.tcx, w.facts = true, facts
			for side, was := range map[terms.Side]*attach.Device{terms.SidePod: &before, terms.SideHost: &host} {
				dev := w.devices[side]
				dev.Hooks = slices.DeleteFunc(dev.Hooks, func(h attach.HookProgram) bool { return h.Name == "theirs" })
				if root := dev.Root(); root != nil && root.Kind == "sfq" {
					dev.Tree = was.Tree
				}
			}
			ensure(t, w, cfg)
			want := newWorld()
			ensure(t, want, cfg)
			if diff := cmp.Diff(want.shape(), w.shape()); diff != "" {
				t.Errorf("the pod (-want +got):\n%s", diff)
			}
			if record(t, w).Choices[tc.d].Settled {
				t.Error("the choices are still told to be of auto")
			}
		})
	}
}
