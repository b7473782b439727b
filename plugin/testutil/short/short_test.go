// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package short_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/testutil/short"
)

// recorder is a test that notes whether it was skipped, and goes on.
type recorder struct {
	testing.TB
	skipped bool
}

func (*recorder) Helper()       {}
func (r *recorder) Skip(...any) { r.skipped = true }

func TestLeaveOut(t *testing.T) {
	r := &recorder{TB: t}
	short.LeaveOut(r, "it waits")
	if r.skipped != testing.Short() {
		t.Errorf("LeaveOut() skipped: %v, with -short: %v", r.skipped, testing.Short())
	}
}
