// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

func TestRepairTellsWhatItMends(t *testing.T) {
	w := newWorld()
	ensure(t, w, both(10_000_000))
	e := w.engine()
	var told []string
	e.Planned = func(i attach.Interface, plan []attach.Action) {
		for _, a := range plan {
			told = append(told, i.PodName+" "+a.Direction.String()+" "+a.Kind.String())
		}
	}
	if _, err := e.Repair(t.Context(), podID); err != nil || len(told) != 0 {
		t.Errorf("Repair of what is in order = %v and mends %v", err, told)
	}
	w.devices[terms.SidePod].Tree = shaping.Tree{}
	if _, err := e.Repair(t.Context(), podID); err != nil {
		t.Fatal(err)
	}
	if want := []string{"eth0 egress build-queue"}; !slices.Equal(told, want) {
		t.Errorf("Repair mends %v, want %v", told, want)
	}
}

// Another interface in the place of the recorded one is not what the record is
// about: it is not repaired, and what is left of the old one can be removed.
func TestRepairOfWhatIsGone(t *testing.T) {
	for name, change := range map[string]func(*world){
		"new namespace": func(w *world) { w.iface.NetNSInode = 2 },
		"new device":    func(w *world) { w.iface.PodIndex = 6 },
		"no device": func(w *world) {
			for _, r := range w.records[podID] {
				r.Interface.NetNSPath = "/run/netns/none"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			ensure(t, w, both(10_000_000))
			e := w.engine()
			if removed, err := e.RemoveGone(t.Context(), podID); removed || err != nil || len(w.records) != 1 {
				t.Errorf("RemoveGone of a pod that is there = %v, %v", removed, err)
			}
			change(w)
			w.log = nil
			if _, err := e.Repair(t.Context(), podID); !errors.Is(err, attach.ErrGone) || len(w.log) != 0 {
				t.Errorf("Repair = %v with the steps %v, want ErrGone and none", err, w.log)
			}
			if removed, err := e.RemoveGone(t.Context(), podID); !removed || err != nil || len(w.records) != 0 {
				t.Errorf("RemoveGone = %v, %v with %d records left", removed, err, len(w.records))
			}
			if removed, err := e.RemoveGone(t.Context(), podID); removed || err != nil {
				t.Errorf("RemoveGone of nothing = %v, %v", removed, err)
			}
		})
	}
}

// What a DEL removed while somebody waited for the lock is not made again.
func TestEnsureOfWhatWasRemovedMeanwhile(t *testing.T) {
	w := newWorld()
	want := wantOf(both(10_000_000))
	want.Existing = true
	if _, err := w.engine().Ensure(t.Context(), want); !errors.Is(err, attach.ErrNotAttached) || len(w.log) != 0 {
		t.Errorf("Ensure = %v with the steps %v, want ErrNotAttached and none", err, w.log)
	}
	want.Existing = false
	if _, err := w.engine().Ensure(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	want.Existing = true
	if _, err := w.engine().Ensure(t.Context(), want); err != nil {
		t.Errorf("Ensure of what is there = %v", err)
	}
}
