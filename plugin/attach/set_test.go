// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// What `set` changed lasts until what is requested changes; how a mistake in it is
// told is no change.
func TestSetOutlivesNotes(t *testing.T) {
	w := newWorld()
	cfg := func(notes ...string) *shaping.Config { return &shaping.Config{Egress: limit(10_000_000), Notes: notes} }
	ensure(t, w, cfg("told by ADD"))
	if _, err := w.engine().Set(t.Context(), podID, func(c *shaping.Config) error { c.Egress.Rate = 5_000_000; return nil }); err != nil {
		t.Fatal(err)
	}
	ensure(t, w, cfg("told by the agent"))
	if got := record(t, w).Config.Egress.Rate; got != 5_000_000 {
		t.Errorf("after another note the rate is %v, want what was set", got)
	}
	changed := cfg("told by the agent")
	changed.Egress.Rate = 20_000_000
	ensure(t, w, changed)
	if got := record(t, w).Config.Egress.Rate; got != 20_000_000 {
		t.Errorf("after another wish the rate is %v, want that", got)
	}
}

// A release that bounded the packets of a pod with exempt networks left a record of it. Who
// comes after it gives back what the device had.
func TestOffloadOfFormerRelease(t *testing.T) {
	w := newWorld()
	cfg := &shaping.Config{Egress: limit(10_000_000), Unshaped: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	ensure(t, w, cfg)
	r := record(t, w)
	choice := r.Choices[terms.Egress]
	choice.Offload = &bigTCP
	r.Choices[terms.Egress] = choice
	must.OK(t, w.Write(r))
	w.devices[terms.SidePod].Offload = attach.Offload{GSO: 3_400, GSOIPv4: 3_400}
	ensure(t, w, cfg)
	if got := w.devices[terms.SidePod].Offload; got != bigTCP {
		t.Errorf("TCP makes packets of up to %v, want %v as before podweir", got, bigTCP)
	}
}

// Records of releases before this one have the choices by the names of the directions, and
// so do those of this one: either reads the other's.
func TestRecordHasChoicesByName(t *testing.T) {
	const old = `{"version":1,"id":{"network":"net","containerID":"c1","ifName":"eth0"},"choices":{"ingress":{"majors":[7],"hookKind":1},"egress":{"majors":[8],"hookKind":1,"note":"n"}}}`
	r, err := attach.UnmarshalRecord([]byte(old))
	must.OK(t, err)
	if got := r.Choices[terms.Egress]; len(r.Choices) != 2 || got.Note != "n" || got.Majors[0] != 8 {
		t.Errorf("choices = %+v, want both, with the note at egress", r.Choices)
	}
	b, err := r.Marshal()
	must.OK(t, err)
	for _, want := range []string{`"egress":{"majors":[8]`, `"ingress":{"majors":[7]`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the record is %s, want %s in it", b, want)
		}
	}
}

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
