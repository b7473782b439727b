// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
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
			err := w.executor().Check(t.Context(), wantOf(cfg))
			if drift := (*apply.DriftError)(nil); !errors.As(err, &drift) || drift.Actions[0].Kind != attach.TearDown ||
				!strings.Contains(err.Error(), "netfilter ingress chain on eth0") {
				t.Errorf("Check = %v, want a tear-down that names the chain", err)
			}
			states, err := w.executor().Repair(t.Context(), podID)
			must.OK(t, err)
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
			if err := w.executor().Check(t.Context(), wantOf(cfg)); err != nil || len(w.log) != 0 {
				t.Errorf("Ensure again did %v, Check = %v, want nothing and nil", w.log, err)
			}
			if err := w.executor().Remove(t.Context(), podID); err != nil || len(w.devices[terms.SidePod].Hooks) != 0 {
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
		_, err := w.executor().Ensure(t.Context(), wantOf(cfg))
		if !errors.Is(err, attach.ErrHookTaken) || !strings.Contains(err.Error(), `"theirs"`) {
			t.Errorf("Ensure = %v, want ErrHookTaken naming the filter", err)
		}
		if w.has("pw_redirect") || !w.has("theirs") || len(w.records) == 0 {
			t.Errorf("Ensure leaves %+v and %d records, want no redirect, the filter and the record", w.shape(), len(w.records))
		}
	}
}

// Whoever ends the chain for every packet ahead of the redirect leaves it none: the limit is policed
// ahead of him, and goes back to its queue when he is gone. Whoever may decide by policy stays ahead.
func TestLeavesTheStarvedRedirect(t *testing.T) {
	u32 := attach.HookProgram{Kind: terms.HookKindClsact, Hook: terms.HookIngress, FilterKind: "u32", Pref: 1, Answer: judge.AnswerEnds}
	tcx := attach.HookProgram{Kind: terms.HookKindTCX, Hook: terms.HookIngress, ProgramID: 9, Name: "theirs", Answer: judge.AnswerEnds}
	unknown, drops := u32, u32
	unknown.Answer, drops.Answer = judge.AnswerUnknown, judge.AnswerDrops
	for name, tc := range map[string]struct {
		other attach.HookProgram
		queue terms.Queue
		says  string
	}{
		"a filter":                {u32, 0, "u32 filter at preference 1 on eth0 ends the chain for every packet"},
		"a filter, queue by name": {u32, terms.QueueTBF, "u32 filter at preference 1 on eth0 ends the chain for every packet"},
		"a TCX program":           {tcx, 0, "theirs (program 9) on eth0 ends the chain for every packet"},
		"who depends on packets":  {unknown, 0, ""},
		"who drops everything":    {drops, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, cfg := starved(t, &tc.other, func(l *shaping.Limit) { l.Queue = cmp.Or(tc.queue, l.Queue) })
			err := w.executor().Check(t.Context(), wantOf(cfg))
			in, failed := w.executor().Inspect(record(t, w))
			if failed != nil || in.Unheld != nil || (in.Starved == "") != (tc.says == "") {
				t.Errorf("inspection = %+v, %v", in, failed)
			}
			if tc.says == "" {
				if err != nil || !w.has("pw_redirect") {
					t.Errorf("Check = %v, want the redirect left in its place", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Check = %v, want %q in it", err, tc.says)
			}
			ensure(t, w, cfg)
			if w.has("pw_redirect") || !w.has("pw_police") || w.devices[terms.SideIFB] != nil {
				t.Errorf("after Ensure the pod has %+v, want a policer", w.shape())
			}
			w.log = nil
			ensure(t, w, cfg)
			if err := w.executor().Check(t.Context(), wantOf(cfg)); err != nil || len(w.log) != 0 {
				t.Errorf("Ensure again did %v, Check = %v, want nothing and nil", w.log, err)
			}
			w.othersLeave()
			ensure(t, w, cfg)
			if !w.has("pw_redirect") || w.has("pw_police") {
				t.Errorf("without him the pod has %+v, want the redirect", w.shape())
			}
		})
	}
}

// starved is a pod whose ingress goes through the ifb, then gets another program ahead of the redirect.
func starved(t *testing.T, other *attach.HookProgram, change func(*shaping.Limit)) (*world, *shaping.Config) {
	t.Helper()
	w, cfg := redirected(t, change)
	pod := w.devices[terms.SidePod]
	pod.NetfilterIngress = false
	pod.Hooks = slices.Insert(pod.Hooks, 0, *other)
	return w, cfg
}

func (w *world) othersLeave() {
	pod := w.devices[terms.SidePod]
	pod.Hooks = slices.DeleteFunc(pod.Hooks, func(h attach.HookProgram) bool { return !h.Ours })
}

// Without TCX nobody gets ahead of him: the limit out of the pod stays, and CHECK, ADD and
// repair say that the other one does not hold, until he is gone.
func TestSaysWhoStarvesTheRedirectWithoutTCX(t *testing.T) {
	w, cfg := starved(t, &attach.HookProgram{Kind: terms.HookKindClsact, Hook: terms.HookIngress, FilterKind: "u32", Pref: 1, Answer: judge.AnswerEnds}, func(*shaping.Limit) {})
	w.tcx = false
	cfg.Egress = limit(5_000_000)
	states, err := w.executor().Ensure(t.Context(), wantOf(cfg))
	_, repaired := w.executor().Repair(t.Context(), podID)
	for _, err := range []error{err, repaired, w.executor().Check(t.Context(), wantOf(cfg))} {
		if !errors.Is(err, attach.ErrHookTaken) || !errors.Is(err, judge.ErrNoTCX) || !strings.Contains(err.Error(), "u32 filter at preference 1") {
			t.Errorf("%v, want ErrHookTaken and ErrNoTCX naming the filter", err)
		}
	}
	if len(states) != 1 || w.dataplanes[terms.Egress] == nil || !w.has("pw_redirect") {
		t.Errorf("Ensure returned %d states and leaves %+v, want both directions", len(states), w.shape())
	}
	w.othersLeave()
	if err := w.executor().Check(t.Context(), wantOf(cfg)); err != nil {
		t.Errorf("Check without him = %v", err)
	}
}

// Whoever asks by hand for a queue by name gets an error, and is told who starves it.
func TestSaysWhoStarvesAQueueByName(t *testing.T) {
	w, cfg := starved(t, &attach.HookProgram{Kind: terms.HookKindTCX, Hook: terms.HookIngress, ProgramID: 9, Name: "theirs", Answer: judge.AnswerEnds},
		func(l *shaping.Limit) { l.Queue = terms.QueueTBF })
	r := record(t, w)
	r.Strict = true
	in, err := w.executor().Inspect(r)
	if !errors.Is(err, attach.ErrHookTaken) || in == nil || !strings.Contains(in.Starved, "theirs (program 9)") || !w.has("pw_redirect") {
		t.Errorf("Inspect = %+v, %v of %+v, want who starves it", in, err, cfg)
	}
}
