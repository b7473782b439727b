// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestReadHandsOverLinesAndEndsWithThem(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	lines := make(chan []byte, 2)
	read(ctx, strings.NewReader("a\nb\n"), lines, cancel)
	if a, b := string(<-lines), string(<-lines); a != "a" || b != "b" {
		t.Errorf("lines %q and %q, want a and b", a, b)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errEnd) {
		t.Errorf("after the last line the cause is %v, want %v", cause, errEnd)
	}
}

func TestEndedForgivesTheEndAlone(t *testing.T) {
	fault := errors.New("fault")
	running := t.Context()
	over, cancel := context.WithCancelCause(running)
	cancel(errEnd)
	signalled, stop := context.WithCancel(running)
	stop()
	for name, tc := range map[string]struct {
		ctx  context.Context
		want error
	}{"running": {running, fault}, "end of the orders": {over, nil}, "a signal": {signalled, nil}} {
		if got := ended(tc.ctx, fault); !errors.Is(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestAnswerRefusesWhatIsNoOrder(t *testing.T) {
	for line, want := range map[string]string{"": "unexpected end", "{}": "no order in {}", `{"pods":{}}`: "no order in"} {
		if _, err := (&driver{}).answer(t.Context(), []byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answer(%q) = %v, want %q in it", line, err, want)
		}
	}
}
