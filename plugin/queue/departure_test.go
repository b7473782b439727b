// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue_test

import (
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/testutil"
)

// An fq holds a packet until its departure time; on a kernel without one the
// self-test says so.
func TestPrivilegedProbeDeparture(t *testing.T) {
	testutil.RequireRoot(t)
	f, err := queue.Probe()
	if err != nil {
		t.Fatal(err)
	}
	const ahead = 50 * time.Millisecond
	took, ok, err := queue.ProbeDeparture(ahead)
	if err != nil {
		t.Fatal(err)
	}
	if ok != f.FQ {
		t.Errorf("ProbeDeparture() = %v, and the kernel has fq: %v", ok, f.FQ)
	}
	if ok && took < ahead {
		t.Errorf("a packet for %v later came after %v", ahead, took)
	}
	// Without a time to wait for it comes much earlier than that, or the test
	// above proves nothing.
	soon, ok, err := queue.ProbeDeparture(0)
	if err != nil {
		t.Fatal(err)
	}
	if ok && soon >= ahead {
		t.Errorf("a packet for now came after %v", soon)
	}
}
