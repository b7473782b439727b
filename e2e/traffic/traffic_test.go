// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"testing"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

var _ = mark.EveryTest(mark.Timed, "it judges rates, or waits of a packet, by the clock")

func TestMain(m *testing.M) {
	if lab.WorkerMain() {
		return
	}
	m.Run()
}

// mostBeside is the highest limit, in bits per second, of tests that run beside others:
// together they leave the processors idle for half of the time.
const mostBeside = 100 * mbit

// beside has a test or a case run beside others if its limit allows for it.
func beside(t *testing.T, bitsPerSec uint64) {
	t.Helper()
	if bitsPerSec <= mostBeside {
		t.Parallel()
	}
}

// newRig makes a rig that goes with the test.
func newRig(t *testing.T) *Rig {
	t.Helper()
	testutil.RequireRoot(t)
	r, err := NewRig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.SparesOthers = true
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return r
}

func shaped(t *testing.T, r *Rig, bitsPerSec uint64, keys map[string]any) *Target {
	t.Helper()
	pod, err := r.Shaped(t.Context(), bitsPerSec, keys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pod.closeMeters(); err != nil {
			t.Error(err)
		}
	})
	return pod
}
