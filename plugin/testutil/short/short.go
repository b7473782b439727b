// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package short keeps slow tests out of "go test -short", which is what "make
// quick" runs. It imports nothing else of this module, so that every test can
// use it.
package short

import "testing"

// LeaveOut skips a test under -short; why says what takes the time. "make test-unit"
// runs every test.
func LeaveOut(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("not under -short: " + why)
	}
}
