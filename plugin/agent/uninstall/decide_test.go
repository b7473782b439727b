// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package uninstall_test

import (
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/uninstall"
)

// step is something that the API server tells.
type step func(*uninstall.State)

func seen(uid string) step {
	return func(s *uninstall.State) { s.Seen(uninstall.Object{UID: uid}) }
}

func deleting(uid string) step {
	return func(s *uninstall.State) { s.Seen(uninstall.Object{UID: uid, Deleting: true}) }
}

func deleted(uid string) step {
	return func(s *uninstall.State) { s.Deleted(uninstall.Object{UID: uid}) }
}

func absent(s *uninstall.State) { s.Absent() }

func TestDecide(t *testing.T) {
	t.Parallel()
	const wait, keep, remove = uninstall.Wait, uninstall.Keep, uninstall.Remove
	for name, test := range map[string]struct {
		told []step
		// atOnce, settled and late are the verdicts right after SIGTERM, after
		// Settle and after Window.
		atOnce, settled, late uninstall.Verdict
	}{
		"nothing was ever seen":               {nil, keep, keep, keep},
		"an upgrade or a restart":             {[]step{seen("a")}, wait, wait, keep},
		"deleted":                             {[]step{seen("a"), deleted("a")}, wait, remove, remove},
		"deleted, its pods first":             {[]step{seen("a"), deleting("a")}, wait, remove, remove},
		"deleted, its pods first, then gone":  {[]step{seen("a"), deleting("a"), deleted("a")}, wait, remove, remove},
		"gone when the watch came back":       {[]step{seen("a"), absent}, wait, remove, remove},
		"changed":                             {[]step{seen("a"), seen("a"), seen("a")}, wait, wait, keep},
		"deleted and made again":              {[]step{seen("a"), deleted("a"), seen("b")}, keep, keep, keep},
		"made again while the watch was away": {[]step{seen("a"), seen("b")}, keep, keep, keep},
		"made again, then deleted":            {[]step{seen("a"), deleted("a"), seen("b"), deleted("b")}, wait, remove, remove},
		"made again, then deleted, pods first": {
			[]step{seen("a"), deleted("a"), seen("b"), deleting("b")}, wait, remove, remove,
		},
		"made again, gone when the watch came back": {[]step{seen("a"), seen("b"), absent}, wait, remove, remove},
		"another is deleted":                        {[]step{seen("a"), deleted("b")}, wait, wait, keep},
		"the predecessor is deleted late":           {[]step{seen("b"), deleted("a")}, wait, wait, keep},
		"only one that is going was seen":           {[]step{deleting("a")}, keep, keep, keep},
		"one that is going, then its successor":     {[]step{deleting("a"), seen("b")}, wait, wait, keep},
		"none was there from the start":             {[]step{absent}, keep, keep, keep},
		"none was there, then deleted":              {[]step{absent, deleted("a")}, keep, keep, keep},
		"an event without a UID":                    {[]step{seen("a"), deleted(""), seen("")}, wait, wait, keep},
	} {
		var s uninstall.State
		for _, tell := range test.told {
			tell(&s)
		}
		for _, at := range []struct {
			since time.Duration
			want  uninstall.Verdict
		}{
			{0, test.atOnce},
			{uninstall.Settle - 1, test.atOnce},
			{uninstall.Settle, test.settled},
			{uninstall.Window - 1, test.settled},
			{uninstall.Window, test.late},
			{time.Hour, test.late},
		} {
			if got := s.Decide(at.since); got != at.want {
				t.Errorf("%s: %v after SIGTERM: %v, want %v", name, at.since, got, at.want)
			}
		}
	}
}

// SIGTERM first, the deletion at different times after it.
func TestDeletionAfterTerm(t *testing.T) {
	t.Parallel()
	var s uninstall.State
	s.Seen(uninstall.Object{UID: "a"})
	if got := s.Decide(uninstall.Window - time.Second); got != uninstall.Wait {
		t.Fatalf("before the deletion: %v, want to wait", got)
	}
	s.Deleted(uninstall.Object{UID: "a"})
	if got := s.Decide(uninstall.Window - time.Second); got != uninstall.Remove {
		t.Errorf("deletion 9 s after SIGTERM: %v, want remove", got)
	}
}

// Whatever is told in whatever order: what was never seen to be deleted stays.
func FuzzNothingIsRemovedUnseen(f *testing.F) {
	f.Add([]byte{0, 4, 2})
	f.Add([]byte{0, 2, 1, 3, 4})
	f.Fuzz(func(t *testing.T, told []byte) {
		steps := []step{seen("a"), seen("b"), deleted("a"), deleted("b"), absent, deleting("a"), deleting("b")}
		var s uninstall.State
		existed, ended := false, false
		for _, b := range told {
			i := int(b) % len(steps)
			steps[i](&s)
			existed = existed || i < 2
			ended = ended || existed && i >= 1
		}
		if s.Decide(0) == uninstall.Remove {
			t.Errorf("%v: removed without waiting for a successor", told)
		}
		if s.Decide(uninstall.Window) == uninstall.Remove && (!existed || !ended) {
			t.Errorf("%v: removed although no deletion was seen", told)
		}
		if s.Decide(uninstall.Window) == uninstall.Wait {
			t.Errorf("%v: undecided for ever", told)
		}
	})
}
