// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

var podID = attach.ID{Network: "net", ContainerID: "c1", IfName: "eth0"}

var limit = shaping.DefaultLimit

func both(rate units.BitRate) *shaping.Config {
	return &shaping.Config{Egress: limit(rate), Ingress: limit(rate)}
}

func wantOf(cfg *shaping.Config) *apply.Want {
	return &apply.Want{ID: podID, Pod: "default/web", NetNSPath: netnsPath, Names: []string{"eth0"}, Config: cfg}
}

func ensure(t *testing.T, w *world, cfg *shaping.Config) {
	t.Helper()
	must.OK(t, must.Err(w.executor().Ensure(t.Context(), wantOf(cfg))))
}

func record(t *testing.T, w *world) *apply.Record {
	t.Helper()
	r := w.records[podID]["eth0"]
	if r == nil {
		t.Fatal("no record")
	}
	return r
}

func TestEnsureOrder(t *testing.T) {
	w := newWorld()
	cfg := both(10_000_000)
	cfg.Ingress.Place = terms.PlaceIFB
	ensure(t, w, cfg)
	// The record first, so that whoever comes after a crash knows everything;
	// a queue before what steers for it, and the redirect last of all.
	want := []string{
		"record",
		"egress load", "egress build-queue", "egress limit-offload", "egress attach", "egress attach-ceiling",
		"ingress make-ifb", "ingress load", "ingress build-queue", "ingress attach", "ingress attach-redirect",
	}
	must.Match(t, "steps", want, w.log)
	w.log = nil
	before := w.shape()
	ids := w.lastID
	ensure(t, w, cfg)
	if len(w.log) != 0 || w.lastID != ids || !cmp.Equal(before, w.shape()) {
		t.Errorf("Ensure a second time did %v, want nothing", w.log)
	}
	must.OK(t, w.executor().Check(t.Context(), wantOf(cfg)))
	must.OK(t, w.executor().Remove(t.Context(), podID))
	if diff := cmp.Diff(newWorld().shape(), w.shape()); diff != "" || len(w.records) != 0 {
		t.Errorf("after Remove (-untouched +got), %d records:\n%s", len(w.records), diff)
	}
	must.OK(t, w.executor().Remove(t.Context(), podID)) // a second time
}

func TestEnsureFailureRemovesWhatWasMade(t *testing.T) {
	cfg := both(10_000_000)
	cfg.Ingress.Place = terms.PlaceIFB
	for kind := attach.MakeIFB; kind < attach.TearDown; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			w := newWorld()
			cfg := cfg
			if kind == attach.AttachGuard {
				cfg, w.facts.Prio = both(100_000_000), true
			}
			if kind == attach.PaceTCP {
				cfg, w.pacing = both(100_000_000), new(kernelPacing)
			}
			w.failAt = kind
			_, err := w.executor().Ensure(t.Context(), wantOf(cfg))
			switch kind {
			case attach.UpdateDataplane, attach.ChangeTree, attach.ReplaceClassifier, attach.RemoveStray, attach.RenewSlot, attach.FreeSlot:
				if err != nil {
					t.Fatalf("Ensure = %v, and %v is no step of a first Ensure", err, kind)
				}
				return
			default:
			}
			must.Is(t, "Ensure", errBoom, err, kind.String(), "eth0 (ifindex 5) in "+netnsPath)
			if diff := cmp.Diff(newWorld().shape(), w.shape()); diff != "" || len(w.records) != 0 {
				t.Errorf("what stayed (-untouched +got), %d records:\n%s", len(w.records), diff)
			}
			if w.locked {
				t.Error("the attachment stays locked")
			}
		})
	}
}

func TestRecordOfAnotherVersion(t *testing.T) {
	r := &apply.Record{Version: apply.RecordVersion + 1, ID: podID}
	b := must.Get(r.Marshal())(t)
	must.Is(t, "UnmarshalRecord", apply.ErrUnknownRecord, must.Err(apply.UnmarshalRecord(b)))
	must.Is(t, "UnmarshalRecord of half an object", apply.ErrUnknownRecord, must.Err(apply.UnmarshalRecord([]byte("{"))))
	// DEL removes the pins all the same.
	w := newWorld()
	ensure(t, w, both(10_000_000))
	w.storeErr = apply.ErrUnknownRecord
	must.OK(t, w.executor().Remove(t.Context(), podID))
	must.Be(t, "records left", 0, len(w.records))
	w.storeErr = errBoom
	must.Is(t, "Remove with an unreadable store", errBoom, w.executor().Remove(t.Context(), podID))
	must.Is(t, "Ensure with an unreadable store", errBoom, must.Err(w.executor().Ensure(t.Context(), wantOf(both(10_000_000)))))
}

// The same ID in a new namespace, or at a new device in the old one: the record
// tells of what is gone.
func TestNewPodUnderTheSameID(t *testing.T) {
	for name, change := range map[string]func(*world){
		"new namespace": func(w *world) { w.iface.NetNSInode = 2 },
		"new device":    func(w *world) { w.iface.PodIndex = 6 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			ensure(t, w, both(10_000_000))
			old := record(t, w).Choices[terms.Egress].Majors
			change(w)
			w.log = nil
			ensure(t, w, both(10_000_000))
			if i, j := slices.Index(w.log, "unpin"), slices.Index(w.log, "record"); i < 0 || j < i {
				t.Errorf("steps %v, want the old record removed before the new one", w.log)
			}
			r := record(t, w)
			if r.Interface != w.iface || slices.Equal(r.Choices[terms.Egress].Majors, old) {
				t.Errorf("record of %+v with majors %v, want those of the new interface", r.Interface, r.Choices[terms.Egress].Majors)
			}
		})
	}
}

// The name of the interface alone is another device's now: the limits stay where the
// packets are.
func TestAnotherDeviceTakesTheName(t *testing.T) {
	w := newWorld()
	ensure(t, w, both(10_000_000))
	shaped := w.shape()
	usurper := w.iface
	usurper.PodIndex, usurper.Kind, usurper.HostName, usurper.HostIndex = 6, "dummy", "", 0
	w.usurper, w.log = &usurper, nil
	ensure(t, w, both(10_000_000))
	must.OK(t, w.executor().Check(t.Context(), wantOf(both(10_000_000))))
	if diff := cmp.Diff(shaped, w.shape()); diff != "" || len(w.log) != 0 {
		t.Errorf("steps %v, want none; (-before +after):\n%s", w.log, diff)
	}
	ensure(t, w, both(20_000_000))
	must.Be(t, "ifindex of the record", podIndex, record(t, w).Interface.PodIndex)
	// Without the first one the name is all there is.
	w.iface = usurper
	ensure(t, w, both(20_000_000))
	must.Be(t, "ifindex of the record after the first device is gone", 6, record(t, w).Interface.PodIndex)
}

// randomConfig draws a configuration that a kernel like the one of f may have.
func randomConfig(rnd *rand.Rand) *shaping.Config {
	pick := func(n int) int { return rnd.IntN(n) }
	one := func(ingress bool) *shaping.Limit {
		if pick(4) == 0 {
			return nil
		}
		l := limit([]units.BitRate{1_000_000, 100_000_000, 10_000_000_000}[pick(3)])
		l.Policy = terms.PolicyStrict + terms.Policy(pick(3))
		l.Queue = []terms.Queue{terms.QueueAuto, terms.QueueTBF, terms.QueueAuto, terms.QueueAuto, terms.QueueNone}[pick(5)]
		l.Mode = terms.ModeAuto + terms.Mode(pick(6))
		if ingress {
			l.Place = terms.PlaceAuto + terms.Place(pick(3))
		}
		return l
	}
	c := &shaping.Config{Egress: one(false), Ingress: one(true)}
	if pick(4) == 0 {
		c.Unshaped = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	return c
}

// Whatever was there before, after Ensure nothing differs from what is wanted,
// and nothing is there that Ensure on an untouched pod would not have made.
func TestEnsureFromAnywhereIsEnsureFromNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	done := 0
	for range 500 {
		facts := shaping.Facts{
			TBF: true, HTB: true, IFB: true, Prio: rnd.IntN(2) == 0, MTU: 1500,
		}
		w, fresh := newWorld(), newWorld()
		w.facts, fresh.facts = facts, facts
		var last *shaping.Config
		for range 3 {
			cfg := randomConfig(rnd)
			if !cfg.Limited() {
				continue
			}
			if _, err := w.executor().Ensure(t.Context(), wantOf(cfg)); err != nil {
				if _, bad := errors.AsType[*shaping.FieldError](err); !bad {
					t.Fatalf("Ensure %+v %+v after %+v: %v", cfg.Egress, cfg.Ingress, last, err)
				}
				continue
			}
			must.Len(t, fmt.Sprintf("steps after Ensure %+v %+v", cfg.Egress, cfg.Ingress), 0, must.Get(drift(w, cfg, record(t, w)))(t))
			last = cfg
		}
		if last == nil {
			continue
		}
		done++
		ensure(t, fresh, last)
		if diff := cmp.Diff(fresh.shape(), w.shape()); diff != "" {
			t.Fatalf("Ensure %+v %+v %v (-on an untouched pod +on a shaped one):\n%s", last.Egress, last.Ingress, last.Unshaped, diff)
		}
		must.OK(t, w.executor().Remove(context.Background(), podID))
		if diff := cmp.Diff(newWorld().shape(), w.shape()); diff != "" || len(w.records) != 0 {
			t.Fatalf("Remove after %+v %+v (-untouched +got):\n%s", last.Egress, last.Ingress, diff)
		}
	}
	if done < 130 {
		t.Fatalf("only %d of the drawn configurations could be applied", done)
	}
}

// An attachment keeps the time when it was made and its maker, whoever changes it later.
func TestWhoMadeTheAttachmentAndWhen(t *testing.T) {
	w := newWorld()
	e := w.executor()
	made := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	now := made
	e.Now = func() time.Time { return now }
	ensure := func(by apply.By, rate units.BitRate) error {
		want := wantOf(both(rate))
		want.By = by
		_, err := e.Ensure(t.Context(), want)
		return err
	}
	for what, change := range map[string]func() error{
		"another limit": func() error { return ensure(apply.ByAgent, 20_000_000) },
		"set": func() error {
			_, err := e.Set(t.Context(), podID, func(c *shaping.Config) error { c.Egress.Rate = 30_000_000; return nil })
			return err
		},
		"repair": func() error {
			w.devices[terms.SidePod].Tree = shaping.Tree{}
			_, err := e.Repair(t.Context(), podID)
			return err
		},
	} {
		now = made
		must.OK(t, ensure(apply.ByPlugin, 10_000_000))
		now = made.Add(time.Hour)
		must.OK(t, change())
		if r := record(t, w); r.By != apply.ByPlugin || !r.Attached.Equal(made) {
			t.Errorf("after %s it was made by %q at %v, want by the plugin at %v", what, r.By, r.Attached, made)
		}
		must.OK(t, e.Remove(t.Context(), podID))
	}
}

// That another attachment has let go of an interface alone is noted, and is no mend. Only what is the pod's, and has no
// record of its own, counts as let go of.
func TestHeldAlone(t *testing.T) {
	w := newWorld()
	ensure(t, w, both(10_000_000))
	r := record(t, w)
	r.Held = []string{"eth0", "eth1", "eth2"}
	for range 2 { // the second time the path is another pod's
		if all, held, err := w.executor().Released([]*apply.Record{r}); len(all)+held != 0 || err != nil {
			t.Errorf("Released() = %v, %d, %v with the inode %d, want none", all, held, err, w.iface.NetNSInode)
		}
		w.iface.NetNSInode++
	}
	w.iface.NetNSInode = r.Interface.NetNSInode
	e := w.executor()
	w.usurper, w.holdersErr = &attach.Interface{NetNSPath: netnsPath, NetNSInode: 1, PodName: "eth0", PodIndex: 6}, errBoom
	if all, held, err := e.Released([]*apply.Record{r}); len(all) != 0 || held != 3 || !errors.Is(err, errBoom) {
		t.Errorf("Released() = %v, %d, %v where nothing can be found out of three, want that error", all, held, err)
	}
	w.usurper = nil
	e.Planned = func(_ attach.Interface, plan []attach.Action) { t.Errorf("it is told as a mend: %v", plan) }
	must.OK(t, must.Err(e.Ensure(t.Context(), wantOf(both(10_000_000)))))
	must.Len(t, "held", 0, record(t, w).Held)
	shared := wantOf(both(10_000_000))
	shared.Names, shared.Config.Shared, w.holdersErr = []string{"eth0", "eth1"}, true, errBoom
	_, err := w.executor().Ensure(t.Context(), shared)
	if among := record(t, w).Config.Among; !errors.Is(err, errBoom) || among != 2 {
		t.Errorf("Ensure() = %v with a limit among %d, want 2 where nothing can be found out of the other", err, among)
	}
}

// slowAt is an executor on a machine that stands still before a step, counted from 1, for
// so long that no time is left. stopped is the name of the step.
func slowAt(w *world, step int) (e *apply.Executor, stopped *string) {
	e, stopped = w.executor(), new(string)
	now := time.Now()
	e.Now = func() time.Time { return now }
	e.Step = func(name string) {
		if step--; step == 0 {
			now, *stopped = now.Add(time.Hour), name
		}
	}
	return e, stopped
}

// Whatever step it is too late for, the error names it, and the next run ends as one
// without a delay: nothing stays of what was not there before.
func TestLateAtEveryStep(t *testing.T) {
	inIFB, other := both(10_000_000), both(20_000_000)
	inIFB.Ingress.Place = terms.PlaceIFB
	for name, tc := range map[string]struct {
		first, with *shaping.Config
		// least is the number of steps below which the test tests nothing.
		least int
	}{
		"a first ADD":         {nil, both(10_000_000), 5},
		"a first ADD, an ifb": {nil, inIFB, 6},
		"another limit":       {both(10_000_000), other, 4},
		"to the ifb":          {both(10_000_000), inIFB, 6},
	} {
		t.Run(name, func(t *testing.T) {
			fresh := newWorld()
			ensure(t, fresh, tc.with)
			late := 0
			for step := 1; ; step++ {
				w := newWorld()
				if tc.first != nil {
					ensure(t, w, tc.first)
				}
				e, stopped := slowAt(w, step)
				_, err := e.Ensure(t.Context(), wantOf(tc.with))
				if w.locked || !w.deadline.IsZero() {
					t.Fatalf("step %d: locked %v, deadline %v, want neither", step, w.locked, w.deadline)
				}
				if *stopped == "" {
					break // there are no more steps
				}
				if *stopped != "record" { // writing it is not left out
					late++
					must.Is(t, "too late for "+*stopped, apply.ErrLate, err, *stopped, "1h0m0s")
				}
				if diff := cmp.Diff(newWorld().shape(), w.shape()); err != nil && tc.first == nil && (diff != "" || len(w.records) != 0) {
					t.Errorf("too late for %q: %d records stay, and (-untouched +got):\n%s", *stopped, len(w.records), diff)
				}
				ensure(t, w, tc.with)
				must.Match(t, fmt.Sprintf("too late for %q, then again", *stopped), fresh.shape(), w.shape())
			}
			must.AtLeast(t, "steps for which it was too late, so that the test looks at something", tc.least, late)
		})
	}
}

// A caller that ends does not stop work that has begun: it would be left half done.
func TestEndOfTheCallerLeavesNothingHalfDone(t *testing.T) {
	w := newWorld()
	e := w.executor()
	ctx, cancel := context.WithCancel(t.Context())
	e.Step = func(string) { cancel() }
	must.OK(t, must.Err(e.Ensure(ctx, wantOf(both(10_000_000)))))
	must.OK(t, e.Check(t.Context(), wantOf(both(10_000_000))))
}
