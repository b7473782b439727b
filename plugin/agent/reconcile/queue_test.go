// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueueHandsOutEachKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a, b := key{uid: "a"}, key{uid: "b"}
		next := func(want key, after time.Duration) {
			t.Helper()
			at := time.Now()
			got, ok := q.next(t.Context())
			if !ok || got != want || time.Since(at) != after {
				t.Fatalf("next = %v, %v after %v, want %v after %v", got, ok, time.Since(at), want, after)
			}
		}
		idle := func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if got, ok := q.next(ctx); ok {
				t.Fatalf("next = %v, want nothing", got)
			}
		}
		// Requested thrice, the earliest counts.
		q.add(a, time.Second)
		q.add(a, time.Hour)
		q.add(a, 10*time.Millisecond)
		q.add(b, time.Second)
		next(a, 10*time.Millisecond)
		// While it is worked on nobody else gets it.
		q.add(a, 0)
		next(b, 990*time.Millisecond)
		q.done(b, false)
		idle()
		q.done(a, false)
		next(a, 0)
		q.done(a, false)
		idle()
		if len(q.items) != 0 {
			t.Errorf("%d keys are remembered, want none", len(q.items))
		}
	})
}

func TestQueueTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		a := key{uid: "a"}
		q.add(a, 0)
		for _, least := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
			at := time.Now()
			q.next(t.Context())
			if took := time.Since(at); took < least || took > least+least/10 {
				t.Errorf("came after %v, want %v and up to a tenth more", took, least)
			}
			q.done(a, true)
		}
		// What changes meanwhile does not wait.
		q.add(a, 0)
		at := time.Now()
		q.next(t.Context())
		if took := time.Since(at); took != 0 {
			t.Errorf("came after %v although it was requested", took)
		}
		q.done(a, false)
		if p := pause(1000); p < retryMax || p > retryMax+retryMax/10 {
			t.Errorf("pause after 1000 failures is %v, want %v", p, retryMax)
		}
	})
}
