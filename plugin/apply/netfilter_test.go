// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

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
		must.Is(t, "Ensure", attach.ErrHookTaken, err, `"theirs"`)
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
			must.Fail(t, "Check", err, tc.says)
			ensure(t, w, cfg)
			if w.has("pw_redirect") || !w.has("pw_police") || w.devices[terms.SideIFB] != nil {
				t.Errorf("after Ensure the pod has %+v, want a policer", w.shape())
			}
			w.log = nil
			ensure(t, w, cfg)
			must.OK(t, w.executor().Check(t.Context(), wantOf(cfg)))
			must.Len(t, "steps of Ensure again", 0, w.log)
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
