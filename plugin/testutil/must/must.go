// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package must ends tests whose preparation fails. It imports nothing, so that tests of
// pure packages can use it, too.
package must

import "testing"

// OK ends the test with err, unless that is nil.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
