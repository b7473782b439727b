// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package must ends tests whose preparation fails, and has what many of them compare in
// one way. It imports nothing of podweir, so that tests of pure packages can use it, too.
package must

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// OK ends the test with err, unless that is nil.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Get is what a call returns beside its error, which ends the test: must.Get(f())(t).
func Get[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		OK(tb, err)
		return v
	}
}

// Err is the error of a call that returns something else, too.
func Err[T any](_ T, err error) error { return err }

// Be fails the test unless got is want. what says what is compared.
func Be[T comparable](tb testing.TB, what string, want, got T) {
	tb.Helper()
	if text, ok := any(got).(string); ok && got != want {
		tb.Errorf("%s: %q, want %q", what, text, any(want))
	} else if got != want {
		tb.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// AtLeast fails the test if got is less. what says what is measured.
func AtLeast[T cmp.Ordered](tb testing.TB, what string, least, got T) {
	tb.Helper()
	if enough := got >= least; !enough { // of NaN, too
		tb.Errorf("%s: %v, want at least %v", what, got, least)
	}
}

// AtMost fails the test if got is more. what says what is measured.
func AtMost[T cmp.Ordered](tb testing.TB, what string, most, got T) {
	tb.Helper()
	if within := got <= most; !within { // of NaN, too
		tb.Errorf("%s: %v, want at most %v", what, got, most)
	}
}

// Within is both.
func Within[T cmp.Ordered](tb testing.TB, what string, least, most, got T) {
	tb.Helper()
	AtLeast(tb, what, least, got)
	AtMost(tb, what, most, got)
}

// Len ends the test unless there are n of something, and returns them.
func Len[S ~[]E, E any](tb testing.TB, what string, n int, all S) S {
	tb.Helper()
	if len(all) != n {
		tb.Fatalf("%s: %d, want %d: %+v", what, len(all), n, all)
	}
	return all
}

// Match fails the test unless got is want, and prints what differs. what says what is
// compared.
func Match(tb testing.TB, what string, want, got any, opts ...gocmp.Option) {
	tb.Helper()
	if diff := gocmp.Diff(want, got, opts...); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Have fails the test unless a text has each of the parts, and none of those that begin
// with "!". what says whose text it is.
func Have(tb testing.TB, what, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if not, ok := strings.CutPrefix(part, "!"); ok && strings.Contains(text, not) {
			tb.Errorf("%s has %q, want nothing of it:\n%s", what, not, text)
		} else if !ok && !strings.Contains(text, part) {
			tb.Errorf("%s has no %q:\n%s", what, part, text)
		}
	}
}

// Part fails the test unless a text has a part, or is empty where that is. what says whose
// text it is.
func Part(tb testing.TB, what, part, text string) {
	tb.Helper()
	if !strings.Contains(text, part) || part == "" && text != "" {
		tb.Errorf("%s: %q, want %q", what, text, part)
	}
}

// Text is an error's, "" of none.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Fail fails the test unless err is an error with each of the parts. what says whose.
func Fail(tb testing.TB, what string, err error, parts ...string) {
	tb.Helper()
	if err == nil {
		tb.Errorf("%s = nil, want an error with %q", what, parts)
		return
	}
	Have(tb, "the error of "+what, err.Error(), parts...)
}

// Is fails the test unless err is the target, with each of the parts. what says whose.
func Is(tb testing.TB, what string, target, err error, parts ...string) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Errorf("%s: error %v, want %v", what, err, target)
		return
	}
	Have(tb, "the error of "+what, Text(err), parts...)
}
