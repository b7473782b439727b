// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package uninstall_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podweir/podweir/plugin/agent/uninstall"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
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
			must.Be(t, fmt.Sprintf("%s: verdict %v after SIGTERM", name, at.since), at.want, s.Decide(at.since))
		}
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

func TestParseName(t *testing.T) {
	t.Parallel()
	if namespace, name, err := uninstall.ParseName("kube-system/podweir"); namespace != "kube-system" || name != "podweir" || err != nil {
		t.Errorf("ParseName() = %q, %q, %v", namespace, name, err)
	}
	for _, bad := range []string{"", "podweir", "/podweir", "kube-system/", "a/b/c"} {
		_, _, err := uninstall.ParseName(bad)
		must.Fail(t, "ParseName of "+bad, err, "namespace/name")
	}
}

// server is an API server as the watcher sees it: a DaemonSet, a fault, and the
// streams that are open.
type server struct {
	mu      sync.Mutex
	uid     string
	fault   error
	streams map[chan uninstall.Event]bool
	lists   int
}

func newServer(uid string) *server {
	return &server{uid: uid, streams: map[chan uninstall.Event]bool{}}
}

func (s *server) List(context.Context) ([]uninstall.Object, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	if s.fault != nil {
		return nil, "", s.fault
	}
	if s.uid == "" {
		return nil, "1", nil
	}
	return []uninstall.Object{{UID: s.uid}}, "1", nil
}

func (s *server) Watch(ctx context.Context, _ string, f func(uninstall.Event)) error {
	ch := make(chan uninstall.Event, 10)
	s.mu.Lock()
	if s.fault != nil {
		s.mu.Unlock()
		return s.fault
	}
	s.streams[ch] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, ch)
		s.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-ch:
			if !open {
				return errors.New("the stream ended")
			}
			f(e)
		}
	}
}

// seen are the streams that are open and the lists that were requested.
func (s *server) seen() (streams, lists int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams), s.lists
}

func (s *server) tell(gone bool, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uid = uid
	if gone {
		s.uid = ""
	}
	for ch := range s.streams {
		ch <- uninstall.Event{Object: uninstall.Object{UID: uid}, Gone: gone}
	}
}

// fail answers everything new with an error; cut ends what is open as well.
func (s *server) fail(err error, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
	if !cut {
		return
	}
	for ch := range s.streams {
		close(ch)
		delete(s.streams, ch)
	}
}

var (
	errForbidden    = errors.New("403 Forbidden")
	errUnauthorized = errors.New("401 Unauthorized")
	errAway         = errors.New("connection refused")
)

func TestAsk(t *testing.T) {
	t.Parallel()
	const gone, exists = true, false
	for name, test := range map[string]struct {
		uid string
		// before and after happen around SIGTERM, after half a second each.
		before, after func(*server)
		want          uninstall.Verdict
		took          time.Duration
	}{
		"nothing happens": {uid: "a", want: uninstall.Keep, took: uninstall.Window},
		"deletion, then SIGTERM": {
			uid: "a", before: func(s *server) { s.tell(gone, "a") }, want: uninstall.Remove, took: uninstall.Settle,
		},
		"SIGTERM, then deletion": {
			uid: "a", after: func(s *server) { s.tell(gone, "a") }, want: uninstall.Remove, took: uninstall.Settle,
		},
		"deletion, then the permissions are gone": {
			uid: "a", before: func(s *server) { s.tell(gone, "a"); s.fail(errForbidden, true) },
			want: uninstall.Remove, took: uninstall.Settle,
		},
		"the permissions are gone first": {
			uid: "a", before: func(s *server) { s.fail(errForbidden, true); s.tell(gone, "a") },
			want: uninstall.Keep, took: uninstall.Window,
		},
		"the token is refused": {
			uid: "a", before: func(s *server) { s.fail(errUnauthorized, true) }, want: uninstall.Keep, took: uninstall.Window,
		},
		"the API server is away": {
			uid: "a", before: func(s *server) { s.fail(errAway, true) }, want: uninstall.Keep, took: uninstall.Window,
		},
		"the API server was away during the deletion": {
			uid:    "a",
			before: func(s *server) { s.fail(errAway, true); s.tell(gone, "a") },
			after:  func(s *server) { s.fail(nil, false) },
			want:   uninstall.Remove, took: uninstall.Settle,
		},
		"the API server was never there": {before: func(s *server) { s.fail(errAway, true) }, want: uninstall.Keep},
		"no DaemonSet by the name":       {want: uninstall.Keep},
		"deleted and made again before": {
			uid: "a", before: func(s *server) { s.tell(gone, "a"); s.tell(exists, "b") }, want: uninstall.Keep,
		},
		"deleted before, made again after": {
			uid: "a", before: func(s *server) { s.tell(gone, "a") }, after: func(s *server) { s.tell(exists, "b") },
			want: uninstall.Keep, took: 500 * time.Millisecond,
		},
		"deleted and made again after": {
			uid: "a", after: func(s *server) { s.tell(gone, "a"); s.tell(exists, "b") },
			want: uninstall.Keep, took: 500 * time.Millisecond,
		},
		"made again while the API server was away": {
			uid:    "a",
			before: func(s *server) { s.fail(errAway, true); s.tell(exists, "b") },
			after:  func(s *server) { s.fail(nil, false) },
			want:   uninstall.Keep, took: 2 * time.Second,
		},
		"another DaemonSet is deleted": {
			uid: "a", before: func(s *server) {
				s.mu.Lock()
				defer s.mu.Unlock()
				for ch := range s.streams {
					ch <- uninstall.Event{Object: uninstall.Object{UID: "x"}, Gone: true}
				}
			}, want: uninstall.Keep, took: uninstall.Window,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(test.uid)
				w := uninstall.New(s, slog.New(slog.DiscardHandler))
				stop := testutil.During(t, func(ctx context.Context) error { w.Run(ctx); return nil })
				synctest.Wait()
				if test.before != nil {
					test.before(s)
				}
				<-time.After(500 * time.Millisecond) // by the clock of the bubble
				began := time.Now()
				if test.after != nil {
					time.AfterFunc(500*time.Millisecond, func() { test.after(s) }) // by the clock of the bubble
				}
				got := w.Ask(t.Context())
				if took := time.Since(began); got != test.want || took > test.took {
					t.Errorf("Ask() = %v after %v, want %v within %v", got, took, test.want, test.took)
				}
				stop()
			})
		})
	}
}

// The watch that was opened while it was allowed is what sees the deletion, since
// permissions are asked when it is opened; and it is opened again when it ends.
func TestWatchIsOpenedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer("a")
		w := uninstall.New(s, slog.New(slog.DiscardHandler))
		testutil.During(t, func(ctx context.Context) error { w.Run(ctx); return nil })
		synctest.Wait()
		streams, _ := s.seen()
		must.Be(t, "streams", 1, streams)
		s.fail(errAway, true)
		<-time.After(time.Minute) // by the clock of the bubble
		if streams, lists := s.seen(); streams != 0 || lists > 30 {
			t.Errorf("%d streams and %d attempts within a minute, want none and a growing pause", streams, lists)
		}
		s.fail(nil, false)
		<-time.After(10 * time.Second) // by the clock of the bubble
		streams, _ = s.seen()
		must.Be(t, "streams when the API server is back", 1, streams)
	})
}
