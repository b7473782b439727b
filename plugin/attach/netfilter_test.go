// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// redirected is a pod whose ingress goes through the ifb, then gets a netfilter
// chain that the redirect hides packets from.
func redirected(t *testing.T, change func(*shaping.Limit)) (*world, *shaping.Config) {
	t.Helper()
	w := newWorld()
	l := limit(10_000_000)
	l.Place = terms.PlaceIFB
	change(l)
	cfg := &shaping.Config{Ingress: l}
	ensure(t, w, cfg)
	if !w.has("pw_redirect") {
		t.Fatal("no redirect")
	}
	w.devices[terms.SidePod].NetfilterIngress = true
	return w, cfg
}

func (w *world) has(program string) bool {
	return slices.ContainsFunc(w.devices[terms.SidePod].Hooks, func(h attach.HookProgram) bool {
		return h.Name == program
	})
}

// Policy comes before the cap: a running redirect is left for policing whatever
// the operator requested, CHECK says so first, and done twice it changes
// nothing.
func TestLeavesTheRedirect(t *testing.T) {
	for name, change := range map[string]func(*shaping.Limit){
		"auto":          func(*shaping.Limit) {},
		"mode by name":  func(l *shaping.Limit) { l.Mode = terms.ModeQdisc },
		"queue by name": func(l *shaping.Limit) { l.Queue = terms.QueueTBF },
		"both by name":  func(l *shaping.Limit) { l.Mode, l.Queue = terms.ModeQdisc, terms.QueueTBF },
	} {
		t.Run(name, func(t *testing.T) {
			w, cfg := redirected(t, change)
			err := w.engine().Check(t.Context(), wantOf(cfg))
			if drift := (*attach.DriftError)(nil); !errors.As(err, &drift) || drift.Actions[0].Kind != attach.TearDown ||
				!strings.Contains(err.Error(), "netfilter ingress chain on eth0") {
				t.Errorf("Check = %v, want a tear-down that names the chain", err)
			}
			states, err := w.engine().Repair(t.Context(), podID)
			if err != nil {
				t.Fatal(err)
			}
			p := states[0].Directions[terms.Ingress].Params
			if p.Queue != terms.QueueNone || p.Redirect || p.CapHolds ||
				!strings.Contains(strings.Join(p.Notes, "\n"), "netfilter ingress chain on eth0") {
				t.Errorf("after Repair %v, redirect %v, notes %q, want policing that says why", p.Queue, p.Redirect, p.Notes)
			}
			if w.has("pw_redirect") || !w.has("pw_police") || w.devices[terms.SideIFB] != nil {
				t.Errorf("after Repair the pod has %+v", w.shape())
			}
			w.log = nil
			ensure(t, w, cfg)
			if err := w.engine().Check(t.Context(), wantOf(cfg)); err != nil || len(w.log) != 0 {
				t.Errorf("Ensure again did %v, Check = %v, want nothing and nil", w.log, err)
			}
			if err := w.engine().Remove(t.Context(), podID); err != nil || len(w.devices[terms.SidePod].Hooks) != 0 {
				t.Errorf("Remove = %v and leaves %+v", err, w.shape())
			}
		})
	}
}

// Where policing is not available either, the redirect goes all the same.
func TestLeavesTheRedirectForNothing(t *testing.T) {
	w, cfg := redirected(t, func(*shaping.Limit) {})
	w.tcx = false
	pod := w.devices[terms.SidePod]
	pod.Hooks = append(pod.Hooks, attach.HookProgram{
		Kind: terms.HookKindClsact, Hook: terms.HookIngress, ProgramID: 9, Name: "theirs",
	})
	for range 2 {
		_, err := w.engine().Ensure(t.Context(), wantOf(cfg))
		if !errors.Is(err, attach.ErrHookTaken) || !strings.Contains(err.Error(), `"theirs"`) {
			t.Errorf("Ensure = %v, want ErrHookTaken naming the filter", err)
		}
		if w.has("pw_redirect") || !w.has("theirs") || len(w.records) == 0 {
			t.Errorf("Ensure leaves %+v and %d records, want no redirect, the filter and the record", w.shape(), len(w.records))
		}
	}
}

// A redirect whose pin is gone hides packets too.
func TestLeavesTheRedirectWithoutPins(t *testing.T) {
	w, cfg := redirected(t, func(*shaping.Limit) {})
	delete(w.dataplanes, terms.Ingress)
	plan, err := drift(w, cfg, record(t, w))
	if err != nil || len(plan) == 0 || plan[0].Kind != attach.TearDown {
		t.Errorf("the plan is %v, %v, want a tear-down first", plan, err)
	}
}

// Where another device has the name of the ifb, ingress is policed, and moves back when
// the name is free.
func TestAnotherDeviceHasTheNameOfTheIFB(t *testing.T) {
	w, cfg := redirected(t, func(*shaping.Limit) {})
	w.devices[terms.SidePod].NetfilterIngress = false
	delete(w.devices, terms.SideIFB)
	w.noIFB = "podweir5 is not an ifb"
	states, err := w.engine().Repair(t.Context(), podID)
	if err != nil {
		t.Fatal(err)
	}
	p := states[0].Directions[terms.Ingress].Params
	if p.Queue != terms.QueueNone || p.Redirect || !strings.Contains(strings.Join(p.Notes, "\n"), w.noIFB) {
		t.Errorf("after Repair %v, redirect %v, notes %q, want policing that says why", p.Queue, p.Redirect, p.Notes)
	}
	if w.has("pw_redirect") || !w.has("pw_police") {
		t.Errorf("after Repair the pod has %+v", w.shape())
	}
	w.log = nil
	ensure(t, w, cfg)
	if len(w.log) != 0 {
		t.Errorf("Ensure again did %v, want nothing", w.log)
	}
	w.noIFB = ""
	ensure(t, w, cfg)
	if !w.has("pw_redirect") || w.has("pw_police") || w.devices[terms.SideIFB] == nil {
		t.Errorf("with the name free the pod has %+v, want the ifb", w.shape())
	}
}
