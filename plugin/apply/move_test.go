// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// limits says that packets of a direction meet a queue or a policer of podweir's.
func (w *world) limits(d terms.Direction) bool {
	if w.devices[attach.QueueSide(d)].OwnTree {
		return true
	}
	ifb := w.devices[terms.SideIFB]
	for side, dev := range w.devices {
		for _, h := range dev.Hooks {
			for _, slot := range []*attach.Dataplane{w.dataplanes[d], w.former[d]} {
				if slot == nil || slot.Slot != h.Slot || terms.DirectionAt(side, h.Hook) != d {
					continue
				}
				if h.Name == "pw_police" || h.Name == "pw_redirect" && ifb != nil && ifb.OwnTree && slot.RedirectIndex == ifb.Index {
					return true
				}
			}
		}
	}
	return false
}

// What limits a direction is there before what limited it goes, whatever it is. What an
// interrupted change left is brought to its end.
func TestLimitChangesBehindItsSuccessor(t *testing.T) {
	type change func(*shaping.Config, *shaping.Limit)
	place := func(p terms.Place) change { return func(_ *shaping.Config, l *shaping.Limit) { l.Place = p } }
	flat := func(p terms.Place) change {
		return func(_ *shaping.Config, l *shaping.Limit) { l.Place, l.Policy = p, terms.PolicyFlat }
	}
	way := func(m terms.Mode, q terms.Queue) change {
		return func(_ *shaping.Config, l *shaping.Limit) { l.Mode, l.Queue = m, q }
	}
	exempt := func(subnet string) change {
		return func(c *shaping.Config, _ *shaping.Limit) { c.Unshaped = []netip.Prefix{netip.MustParsePrefix(subnet)} }
	}
	none := func(*shaping.Config, *shaping.Limit) {}
	policed := way(terms.ModeAuto, terms.QueueNone)
	foreign := func(w *world) { foreignRoot(w, terms.SideHost) }
	lifted := func(w *world) { w.devices[terms.SideHost].Tree = shaping.Tree{} }
	for name, tt := range map[string]struct {
		from, to      change
		first, second func(*world)
		ingress       bool
	}{
		"to an ifb":                 {from: none, to: place(terms.PlaceIFB), ingress: true},
		"from an ifb":               {from: place(terms.PlaceIFB), to: none, ingress: true},
		"flat, to an ifb":           {from: flat(terms.PlaceHost), to: flat(terms.PlaceIFB), ingress: true},
		"flat, from an ifb":         {from: flat(terms.PlaceIFB), to: flat(terms.PlaceHost), ingress: true},
		"another's root was here":   {from: none, to: none, first: foreign, second: lifted, ingress: true},
		"to policing":               {from: none, to: policed},
		"from policing":             {from: policed, to: none},
		"policing to an ifb":        {from: policed, to: place(terms.PlaceIFB), ingress: true},
		"an ifb to policing":        {from: place(terms.PlaceIFB), to: policed, ingress: true},
		"policing to the host side": {from: policed, to: way(terms.ModeTCXHostSide, terms.QueueNone)},
		"policing by TCX":           {from: policed, to: way(terms.ModeTCXPodSide, terms.QueueNone)},
		"another policy":            {from: none, to: flat(terms.PlaceAuto)},
		"an exempt subnet":          {from: none, to: exempt("192.0.2.0/24")},
		"another exempt subnet":     {from: exempt("198.51.100.0/24"), to: exempt("192.0.2.0/24")},
	} {
		for _, d := range terms.Directions {
			if tt.ingress && d == terms.Egress {
				continue
			}
			if name == "policing to the host side" && d == terms.Ingress {
				tt.to = way(terms.ModeTCXHostSide, terms.QueueTBF) // nothing is policed there
			}
			t.Run(name+"/"+d.String(), func(t *testing.T) {
				with := func(f change) *shaping.Config {
					cfg := both(100_000_000)
					f(cfg, cfg.Limit(d))
					return cfg
				}
				begin := func() *world {
					w := newWorld()
					w.pacing = new(kernelPacing)
					return w
				}
				start := func() *world {
					w := begin()
					if tt.first != nil {
						tt.first(w)
					}
					ensure(t, w, with(tt.from))
					if tt.second != nil {
						tt.second(w)
					}
					return w
				}
				fresh := begin()
				ensure(t, fresh, with(tt.to))
				w := start()
				e, steps := w.executor(), []string{}
				e.Drifted = func(_ attach.ID, plan []attach.Action) { t.Errorf("told as the doing of another party: %v", plan) }
				e.Step = func(step string) {
					if steps = append(steps, step); !w.limits(d) {
						t.Errorf("nothing limits %v at %q, after %q", d, step, steps)
					}
				}
				must.OK(t, must.Err(e.Ensure(t.Context(), wantOf(with(tt.to)))))
				must.Match(t, "beside a pod that began there", fresh.shape(), w.shape())
				must.OK(t, w.executor().Check(t.Context(), wantOf(with(tt.to))))

				for kind := attach.MakeIFB; kind <= attach.TearDown; kind++ {
					if !slices.Contains(steps, d.String()+" "+kind.String()) {
						continue
					}
					w := start()
					w.failAt = kind
					must.Is(t, "Ensure that ends with "+kind.String(), errBoom, must.Err(w.executor().Ensure(t.Context(), wantOf(with(tt.to)))))
					if !w.limits(d) {
						t.Errorf("ended after %v, nothing limits %v", kind, d)
					}
					w.failAt = 0
					ensure(t, w, with(tt.to))
					must.Match(t, fmt.Sprintf("ended after %v, and done again", kind), fresh.shape(), w.shape())
					if w.former[d] != nil {
						t.Errorf("ended after %v, and done again, a slot is left", kind)
					}
					if tt.second != nil {
						continue
					}
					w = start()
					began := w.shape()
					w.failAt = kind
					must.Is(t, "Ensure that ends with "+kind.String(), errBoom, must.Err(w.executor().Ensure(t.Context(), wantOf(with(tt.to)))))
					w.failAt = 0
					ensure(t, w, with(tt.from))
					back := w.shape()
					if is, was := back[d.String()], began[d.String()]; len(is) == len(was) && len(is) == 3 {
						is[2] = was[2] // it may name an ifb that is gone: nothing reads that
					}
					if diff := cmp.Diff(began, back); diff != "" || w.former[d] != nil {
						t.Errorf("ended after %v, and back again, a slot is left: %v, differs (-began +back): %s", kind, w.former[d] != nil, diff)
					}
				}
			})
		}
	}
}
