// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package traffic

import (
	"os"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
)

// TestPrivilegedAdoptedPodsAreLoadedAndLeft: pods of one lab are measured by
// the rig of another, which leaves them as they are.
func TestPrivilegedAdoptedPodsAreLoadedAndLeft(t *testing.T) {
	theirs := newRig(t)
	const bitsPerSec = 20_000_000
	pod := shaped(t, theirs, bitsPerSec, nil)

	l, err := lab.New(t.Context(), lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	adopt := func(h *lab.Host) *lab.Pod {
		p, err := l.Adopt(h.Name, h.Netns.Path(), h.IfName, h.V4)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	rig, err := NewRigOf(l, &adopt(theirs.Client).Host, adopt(&theirs.Free.Host))
	if err != nil {
		t.Fatal(err)
	}
	adopted := adopt(&pod.Host)
	target, err := rig.TargetOf(adopted)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Directions {
		got, err := rig.MeasureOn(t.Context(), target, Case{Cap: bitsPerSec, Direction: d, Load: TCP1, Duration: 2500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		// Loose: which wire is metered, not how well the cap is kept.
		if got.Used < 0.8 || got.Used > 1.1 {
			t.Errorf("%s: %.3f of the cap used, want the whole of it", d, got.Used)
		}
	}
	if err := target.Close(t.Context()); err != nil {
		t.Errorf("Close() of an adopted pod = %v, want nil", err)
	}
	if _, err := os.Stat(adopted.Netns.Path()); err == nil {
		t.Errorf("%s is still there", adopted.Netns.Path())
	}
	if err := rig.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	if err := pod.Check(t.Context()); err != nil {
		t.Errorf("CHECK of a pod that was adopted = %v, want nil", err)
	}
}
