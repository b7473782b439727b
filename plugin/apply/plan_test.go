// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// rich is a world in which every kind of thing is attached: egress with a filter
// and a guard, ingress at the ifb.
func rich(t *testing.T) (*world, *shaping.Config) {
	t.Helper()
	w := newWorld()
	cfg := both(100_000_000)
	w.facts.Prio = true
	cfg.Ingress.Place = terms.PlaceIFB
	ensure(t, w, cfg)
	return w, cfg
}

func kinds(plan []attach.Action) []string {
	out := []string{}
	for _, a := range plan {
		out = append(out, a.Direction.String()+" "+a.Kind.String())
	}
	return out
}

func dropHooks(d *attach.Device, name string) {
	d.Hooks = slices.DeleteFunc(d.Hooks, func(h attach.HookProgram) bool { return h.Name == name })
}

// Each difference asks for exactly its own step, and that step mends it.
func TestPlanOfOneDifference(t *testing.T) {
	const cut = "podweir5 cuts packets of more than 6.4 kB"
	comes := func(w *world) {
		dev := w.devices[terms.SideHost]
		dev.Hooks = slices.Insert(dev.Hooks, 0, attach.HookProgram{
			Kind: terms.HookKindClsact, Hook: terms.HookIngress, ProgramID: 7, Name: "other", Pref: 1,
		})
	}
	for _, tt := range []struct {
		name   string
		break_ func(*world)
		want   []string
		reason string
	}{
		{"nothing", func(*world) {}, []string{}, ""},
		{"the ifb cuts packets", func(w *world) { w.devices[terms.SideIFB].Offload.GSO = 6_400 }, []string{"ingress make-ifb"}, cut},
		{"it cuts those of IPv4", func(w *world) { w.devices[terms.SideIFB].Offload.GSOIPv4 = 6_400 }, []string{"ingress make-ifb"}, cut},
		{"64 KiB are enough for it", func(w *world) {
			w.devices[terms.SideIFB].Offload = attach.Offload{GSO: 65_536, GSOIPv4: 65_536}
		}, []string{}, ""},
		{
			"the slot is for another program", func(w *world) { w.dataplanes[terms.Egress].ProgramName = "pw_band" },
			[]string{"egress renew-slot", "egress load", "egress replace-classifier", "egress attach-ceiling", "egress free-slot"},
			"another way of limiting it",
		},
		{
			"the slot is for another device", func(w *world) { w.dataplanes[terms.Egress].Side = terms.SideHost },
			[]string{"egress renew-slot", "egress load", "egress replace-classifier", "egress attach-ceiling", "egress free-slot"},
			"another way of limiting it",
		},
		{
			"the slot has limits of another layout", func(w *world) { w.dataplanes[terms.Egress].Datapath = image.Config{} },
			[]string{"egress update"},
			"the slot has no limits of this build",
		},
		{
			"the slot was given back, and the link is not gone yet", func(w *world) {
				delete(w.dataplanes, terms.Egress)
				for i := range w.devices[terms.SideHost].Hooks {
					w.devices[terms.SideHost].Hooks[i].Slot = 0
				}
			},
			[]string{"egress load", "egress replace-classifier", "egress attach-ceiling"},
			"no slot for pw_class",
		},
		{
			"other limits in the slot", func(w *world) { w.dataplanes[terms.Egress].Datapath.HoldTicks++ },
			[]string{"egress update"},
			"thresholds of flows differ",
		},
		{
			"the redirect goes elsewhere", func(w *world) { w.dataplanes[terms.Ingress].RedirectIndex = 1 },
			[]string{"ingress update"},
			"redirect goes to ifindex 1",
		},
		{"the bands are gone", func(w *world) {
			tree := &w.devices[terms.SideIFB].Tree
			tree.Qdiscs = tree.Qdiscs[:1]
		}, []string{"ingress build-queue"}, "no prio"},
		{
			"the classifier is gone", func(w *world) { w.devices[terms.SidePod].Tree.Filter = nil },
			[]string{"egress build-queue"},
			"classifier filter is missing",
		},
		{
			"another classifier", func(w *world) { w.devices[terms.SidePod].Classifier.Name = "pw_other" },
			[]string{"egress replace-classifier"},
			`classifier is program "pw_other"`,
		},
		{
			"a classifier with another slot", func(w *world) { w.devices[terms.SidePod].Classifier.Slot++ },
			[]string{"egress replace-classifier"},
			"classifier pw_class",
		},
		{
			"programs of another build", (*world).outdate,
			[]string{"egress replace-classifier", "egress attach-guard", "egress attach-ceiling", "ingress replace-classifier", "ingress attach-redirect"},
			"is of another build",
		},
		{
			"the guard is detached", func(w *world) { dropHooks(w.devices[terms.SidePod], "pw_guard") },
			[]string{"egress attach-guard"},
			"pw_guard is not on the egress hook of eth0",
		},
		{
			"another party comes to the ceiling's hook", comes,
			[]string{"egress attach-ceiling"},
			`pw_ceiling is on clsact, want tcx because of other (program 7) at preference 1 on the ingress hook of veth1`,
		},
		{
			"another party comes to the ceiling's hook, and there is no TCX", func(w *world) {
				comes(w)
				w.tcx = false
			},
			[]string{"egress remove-stray"},
			"on the ingress hook of veth1: of no use",
		},
		{
			"the ceiling is there twice", func(w *world) {
				dev := w.devices[terms.SideHost]
				again := dev.Hooks[slices.IndexFunc(dev.Hooks, func(h attach.HookProgram) bool { return h.Name == "pw_ceiling" })]
				again.Kind = terms.HookKindTCX
				dev.Hooks = append(dev.Hooks, again)
			},
			[]string{"egress attach-ceiling"},
			"pw_ceiling is on the ingress hook of veth1 twice",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, cfg := rich(t)
			tt.break_(w)
			plan := must.Get(drift(w, cfg, record(t, w)))(t)
			must.Match(t, "plan", tt.want, kinds(plan))
			if len(plan) > 0 && !strings.Contains(plan[0].Reason, tt.reason) {
				t.Errorf("reason %q, want %q in it", plan[0].Reason, tt.reason)
			}
			ensure(t, w, cfg)
			must.Len(t, "steps after the plan was applied", 0, must.Get(drift(w, cfg, record(t, w)))(t))
		})
	}
}

// Without prio the program is on a hook of the ifb.
func TestPlanOfOneDifferenceOfAHook(t *testing.T) {
	w, cfg := newWorld(), both(100_000_000)
	cfg.Ingress.Place = terms.PlaceIFB
	ensure(t, w, cfg)
	w.devices[terms.SideIFB].Hooks[0].Slot++
	plan := must.Get(drift(w, cfg, record(t, w)))(t)
	if got := kinds(plan); !slices.Equal(got, []string{"ingress attach"}) || !strings.Contains(plan[0].Reason, "on the egress hook of podweir5 pw_band") {
		t.Errorf("plan %v, want ingress attach because of another slot", plan)
	}
}

// outdate makes all programs of podweir's ones of another build.
func (w *world) outdate() {
	for _, dev := range w.devices {
		if dev.Classifier != nil {
			dev.Classifier.Current = false
		}
		for i := range dev.Hooks {
			dev.Hooks[i].Current = false
		}
	}
}

// share gives egress another share, as the agent's loop does.
func share(w *world, rate units.ByteRate) {
	cfg, pod := &shaping.Config{Egress: limit(rate.BitRate())}, w.devices[terms.SidePod]
	divider := shaping.NewDivider(cfg, w.facts, &shaping.Params{Direction: terms.Egress, Tree: &pod.Tree})
	classes, dp := divider.At(rate)
	copy(pod.Tree.Classes, classes)
	w.dataplanes[terms.Egress].Datapath.TotalRate = dp.TotalRate
}

// A share of a group's limit is no difference if queue and slot have the same, whatever it is by now. All else is one.
func TestPlanOfAShare(t *testing.T) {
	for name, tt := range map[string]struct {
		break_ func(w *world)
		want   []string
	}{
		"the share moved": {func(w *world) {
			share(w, 7_000_000)
			d := &w.dataplanes[terms.Egress].Datapath
			d.SketchRate.Mult, d.TotalBurst, d.LightMost = 6, 7, 8
		}, []string{}},
		"light packets have no more yet, of a share that rose": {func(w *world) {
			light := w.devices[terms.SidePod].Tree.Classes[1]
			share(w, 9_000_000)
			w.devices[terms.SidePod].Tree.Classes[1] = light
		}, []string{}},
		"light packets have more than a share that fell": {func(w *world) {
			share(w, 9_000_000)
			light := w.devices[terms.SidePod].Tree.Classes[1]
			share(w, 500_000)
			w.devices[terms.SidePod].Tree.Classes[1] = light
		}, []string{"egress change-queue"}},
		"the pod raised its share": {func(w *world) {
			c := &w.devices[terms.SidePod].Tree.Classes[0]
			c.Rate, c.Ceil = 12_000_000, 12_000_000
		}, []string{"egress change-queue"}},
		"the pod raised what its light packets have of it": {func(w *world) {
			w.devices[terms.SidePod].Tree.Classes[1].Rate *= 64
		}, []string{"egress change-queue"}},
		"the pod raised the burst of its share": {func(w *world) { w.devices[terms.SidePod].Tree.Classes[0].CeilBurst = 1 << 20 }, []string{"egress change-queue"}},
		"the slot chooses other bands":          {func(w *world) { w.dataplanes[terms.Egress].Datapath.HeavyPriority++ }, []string{"egress update"}},
		"the slot has limits of nobody":         {func(w *world) { w.dataplanes[terms.Egress].Datapath = image.Config{} }, []string{"egress update"}},
		"the pod's own limit is another":        {func(w *world) { w.devices[terms.SidePod].Tree.Qdiscs[1].Rate++ }, []string{"egress change-queue"}},
		"the pod's own limit was higher, and so was its share": {func(w *world) {
			w.devices[terms.SidePod].Tree.Qdiscs[1].Rate = 20_000_000
			share(w, 20_000_000)
		}, []string{"egress update", "egress change-queue"}},
		"large packets are not cut": {func(w *world) { w.devices[terms.SidePod].Tree.Qdiscs[1].Segment = 0 }, []string{"egress change-queue"}},
		"the class is gone":         {func(w *world) { w.devices[terms.SidePod].Tree.Classes = nil }, []string{"egress build-queue"}},
		// The queue begins with the first share, and who divides sees by the slot that it has to set it.
		"the class is gone, whose share moved": {func(w *world) {
			share(w, 7_000_000)
			w.devices[terms.SidePod].Tree.Classes = nil
		}, []string{"egress update", "egress build-queue"}},
		"the queue belongs to no group": {func(w *world) {
			tree := &w.devices[terms.SidePod].Tree
			tree.Qdiscs = tree.Qdiscs[1:]
			tree.Qdiscs[0].Parent = shaping.RootParent
		}, []string{"egress build-queue"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, cfg := newWorld(), &shaping.Config{Egress: limit(100_000_000)}
			cfg.Egress.Group = 200_000_000
			ensure(t, w, cfg)
			tt.break_(w)
			plan := must.Get(drift(w, cfg, record(t, w)))(t)
			must.Match(t, "plan", tt.want, kinds(plan))
		})
	}
}

// The ceiling of a group is at the other end of each queue, and goes with the group's limit.
func TestPlanOfTheCeilingOfAGroup(t *testing.T) {
	w, cfg := newWorld(), both(100_000_000)
	cfg.Egress.Group, cfg.Ingress.Group = 200_000_000, 200_000_000
	want := wantOf(cfg)
	want.Pod = "batch/one"
	must.OK(t, must.Err(w.executor().Ensure(t.Context(), want)))
	pod, host := w.devices[terms.SidePod], w.devices[terms.SideHost]
	planned := func(what string, cfg *shaping.Config, want ...string) {
		t.Helper()
		plan := must.Get(drift(w, cfg, record(t, w)))(t)
		must.Match(t, what+": plan", want, kinds(plan), cmpopts.EquateEmpty())
	}
	ceilings := func() (at []string) {
		for side, dev := range map[string]*attach.Device{"pod": pod, "host": host} {
			for _, h := range dev.Hooks {
				if h.Name == "pw_ceiling" {
					at = append(at, side+" "+h.Hook.String())
				}
			}
		}
		slices.Sort(at)
		return at
	}
	must.Match(t, "ceilings", []string{"host ingress", "pod ingress"}, ceilings())
	planned("as it was made", cfg)
	alone := both(100_000_000)
	dropHooks(pod, "pw_ceiling")
	planned("the ceiling of ingress is detached", cfg, "ingress attach-ceiling")
	w.dataplanes[terms.Egress].Datapath.Group++
	planned("the meter is another group's", cfg, "egress update", "ingress attach-ceiling")
	want.Config = alone
	must.OK(t, must.Err(w.executor().Ensure(t.Context(), want)))
	must.Match(t, "ceilings without a group", []string{"host ingress"}, ceilings())
	planned("without a group", alone)
}

// Inside the pod, too, where a filter suffices as long as nobody else is there:
// a program that comes later is named, and TCX takes the head from it. The
// filter that an operator requested by name cannot.
func TestPlanKeepsTheHeadInsideThePod(t *testing.T) {
	w := newWorld()
	cfg := &shaping.Config{Egress: limit(10_000_000)}
	ensure(t, w, cfg)
	pod := w.devices[terms.SidePod]
	if len(pod.Hooks) != 1 || pod.Hooks[0].Kind != terms.HookKindClsact {
		t.Fatalf("hooks of the pod side: %+v, want one filter", pod.Hooks)
	}
	pod.Hooks = slices.Insert(pod.Hooks, 0, attach.HookProgram{
		Kind: terms.HookKindTCX, Hook: terms.HookEgress, ProgramID: 10, Name: "hostile",
	})
	in, err := w.executor().Inspect(record(t, w))
	if err != nil || !slices.Equal(kinds(in.Plan), []string{"egress attach"}) ||
		!strings.Contains(in.Plan[0].Reason, "because of hostile (program 10)") ||
		in.Want.Directions[terms.Egress].HookKind != terms.HookKindTCX {
		t.Errorf("inspection = %+v, %v, want TCX because of the program that is named", in, err)
	}
	named := &shaping.Config{Egress: limit(10_000_000)}
	named.Egress.Mode = terms.ModeClsactPodSide
	byHand := *record(t, w)
	byHand.Strict = true
	must.Is(t, "with clsact by name", attach.ErrHookTaken, must.Err(drift(w, named, &byHand)), `"hostile"`)
}

func TestTreeDiff(t *testing.T) {
	// below is a tree with a child of this kind below a bucket.
	below := func(child shaping.Qdisc) func() *shaping.Tree {
		child.Handle, child.Parent = 0x20000, 0x10001
		return func() *shaping.Tree {
			return &shaping.Tree{Qdiscs: []shaping.Qdisc{
				{Kind: shaping.KindTBF, Handle: 0x10000, Parent: shaping.RootParent, Rate: 1_250_000, Burst: 12_500}, child,
			}}
		}
	}
	fifo := below(shaping.Qdisc{Kind: shaping.KindBfifo, Limit: 30_000})
	classes := func() *shaping.Tree {
		return &shaping.Tree{
			Qdiscs:  []shaping.Qdisc{{Kind: shaping.KindHTB, Handle: 0x10000, Parent: shaping.RootParent}},
			Classes: []shaping.Class{{Handle: 0x10002, Parent: 0x10000, Rate: 1000, Ceil: 1000}, {Handle: 0x10003, Parent: 0x10000, Rate: 1000, Ceil: 1000}},
		}
	}
	tests := []struct {
		name    string
		base    func() *shaping.Tree
		change  func(*shaping.Tree)
		diff    string
		inPlace bool
	}{
		{"equal", fifo, func(*shaping.Tree) {}, "", true},
		{"the bucket is off by the kernel's rounding", fifo, func(g *shaping.Tree) { g.Qdiscs[0].Burst -= 12 }, "", true},
		{"another bucket", fifo, func(g *shaping.Tree) { g.Qdiscs[0].Burst = 13_000 }, "tbf burst is 13 kB, want 12.5 kB", true},
		{"a bucket that takes too long to be told", func() *shaping.Tree {
			slow := fifo()
			slow.Qdiscs[0].Rate, slow.Qdiscs[0].Burst = 125, 65_553
			return slow
		}, func(g *shaping.Tree) { g.Qdiscs[0].Burst = 31_194 }, "", true},
		{"another rate", fifo, func(g *shaping.Tree) { g.Qdiscs[0].Rate = 2_500_000 }, "limit of the queue (tbf) is 20 Mbit/s, want 10 Mbit/s", true},
		{"another depth", fifo, func(g *shaping.Tree) { g.Qdiscs[1].Limit = 1 }, "bfifo limit is 1 B, want 30 kB", true},
		{"another kind", fifo, func(g *shaping.Tree) { g.Qdiscs[1].Kind = shaping.KindPfifoFast }, "1:1 is pfifo_fast, want bfifo", false},
		{"another root", fifo, func(g *shaping.Tree) { g.Qdiscs[0].Handle = 0x30000 }, "no tbf 1:0 at 10 Mbit/s under root", false},
		{"no child", fifo, func(g *shaping.Tree) { g.Qdiscs = g.Qdiscs[:1] }, "no bfifo 2:0 under 1:1", false},
		{"nothing", fifo, func(g *shaping.Tree) { g.Qdiscs = nil }, "no root qdisc, want tbf 1:0 at 10 Mbit/s", false},
		{"nothing, where a prio is above the bucket", func() *shaping.Tree {
			bucket := fifo().Qdiscs[0]
			bucket.Handle, bucket.Parent = 0x20000, 0x10002
			return &shaping.Tree{Qdiscs: []shaping.Qdisc{{Kind: shaping.KindPrio, Handle: 0x10000, Parent: shaping.RootParent, Bands: 2}, bucket}}
		}, func(g *shaping.Tree) { g.Qdiscs = nil }, "no root qdisc, want prio 1:0 at 10 Mbit/s", false},
		{"another rate and a foreign qdisc", fifo, func(g *shaping.Tree) {
			g.Qdiscs[0].Rate = 2_500_000
			g.Qdiscs = append(g.Qdiscs, shaping.Qdisc{Kind: "sfq", Handle: 0x90000, Parent: 0x20001})
		}, "limit of the queue (tbf) is 20 Mbit/s, want 10 Mbit/s", false},
		{"a filter too many", fifo, func(g *shaping.Tree) { g.Filter = &shaping.Filter{} }, "a filter on podweir's queue", false},
		{"another party's filter", fifo, func(g *shaping.Tree) { g.Others = []string{"u32 filter at preference 1"} }, "u32 filter at preference 1 on podweir's queue", false},
		{"a faster class", classes, func(g *shaping.Tree) { g.Classes[0].Rate++ }, "has rate", true},
		{"a class is gone", classes, func(g *shaping.Tree) { g.Classes = g.Classes[1:] }, "1 classes, want 2", false},
		{"more bands", below(shaping.Qdisc{Kind: shaping.KindPrio, Bands: 2}), func(g *shaping.Tree) { g.Qdiscs[1].Bands++ }, "prio has 3 bands", false},
		{"another default", below(shaping.Qdisc{Kind: shaping.KindHTB, DefaultClass: 2}), func(g *shaping.Tree) { g.Qdiscs[1].DefaultClass++ }, "htb default is 3", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.base()
			tt.change(got)
			diff, inPlace := attach.TreeDiff(tt.base(), got)
			if (tt.diff == "") != (diff == "") || !strings.Contains(diff, tt.diff) || diff != "" && inPlace != tt.inPlace {
				t.Errorf("TreeDiff = %q, in place %v, want %q, %v", diff, inPlace, tt.diff, tt.inPlace)
			}
		})
	}
}

// What is changed because the wish changed, or because of another release, is nobody's
// doing.
func TestDriftIsWhatSomebodyElseDid(t *testing.T) {
	for name, change := range map[string]func(*world, *shaping.Config){
		"another rate":  func(_ *world, c *shaping.Config) { c.Egress.Rate *= 2 },
		"another queue": func(_ *world, c *shaping.Config) { c.Egress.Queue = terms.QueueNone },
		"another build": func(w *world, _ *shaping.Config) { w.outdate() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			ensure(t, w, both(10_000_000))
			cfg := both(10_000_000)
			change(w, cfg)
			e := w.executor()
			e.Drifted = func(_ attach.ID, plan []attach.Action) { t.Errorf("told of drift: %v", plan) }
			if _, err := e.Ensure(t.Context(), wantOf(cfg)); err != nil && !errors.Is(err, errBoom) {
				t.Fatal(err)
			}
		})
	}
}

var (
	kernelPacing = shaping.Pacing{RTTLog: 9, MinSegments: 2}
	ownPacing    = shaping.Pacing{RTTLog: 0, MinSegments: 12}
)

// An author may have chosen what podweir would. It stays when the limit goes, unless podweir's
// queue without a record says that it was podweir.
func TestPacingOfTheAuthorAsPodweirs(t *testing.T) {
	w := newWorld()
	w.pacing = new(ownPacing)
	ensure(t, w, &shaping.Config{Egress: limit(100_000_000)})
	must.OK(t, w.executor().Remove(t.Context(), podID))
	must.Be(t, "the author's pacing", ownPacing, *w.pacing)
	w = newWorld()
	w.pacing = new(kernelPacing)
	ensure(t, w, &shaping.Config{Egress: limit(100_000_000)})
	clear(w.records)
	clear(w.dataplanes)
	ensure(t, w, &shaping.Config{Egress: limit(1_000_000_000)})
	must.Be(t, "pacing after the record was lost and the limit raised", kernelPacing, *w.pacing)
}

// Two limits in one namespace agree about it, and the last one gives back what was there before.
func TestPacingOfTwoInterfaces(t *testing.T) {
	now, first, second := kernelPacing, shaping.Pacing{}, shaping.Pacing{}
	for range 2 {
		now, first = now.Next(first, true)
		now, second = now.Next(second, true)
		must.Be(t, "pacing of a namespace with limits", ownPacing, now)
	}
	now, _ = now.Next(first, false)
	now, second = now.Next(second, true)
	must.Be(t, "pacing of a namespace with limits", ownPacing, now)
	now, _ = now.Next(second, false)
	must.Be(t, "without limits", kernelPacing, now)
}

// What `set` changed lasts until what is requested changes; how a mistake in it is
// told is no change.
func TestSetOutlivesNotes(t *testing.T) {
	w := newWorld()
	cfg := func(notes ...string) *shaping.Config { return &shaping.Config{Egress: limit(10_000_000), Notes: notes} }
	ensure(t, w, cfg("told by ADD"))
	must.OK(t, must.Err(w.executor().Set(t.Context(), podID, func(c *shaping.Config) error { c.Egress.Rate = 5_000_000; return nil })))
	ensure(t, w, cfg("told by the agent"))
	must.Be(t, "after another note the rate", 5_000_000, record(t, w).Config.Egress.Rate)
	changed := cfg("told by the agent")
	changed.Egress.Rate = 20_000_000
	ensure(t, w, changed)
	must.Be(t, "after another wish the rate", 20_000_000, record(t, w).Config.Egress.Rate)
}

// What waits stays while `set` changes a rate. Where the kernel has prio, a bucket that takes whole offloaded packets and
// one that cuts them have the classifier on different sides.
func TestSetKeepsTheQueue(t *testing.T) {
	const line = 54_000_000
	for _, tt := range []struct {
		prio     bool
		from, to units.BitRate
		burst    units.Bytes
		kept     bool
	}{
		{false, 10_000, 100_000_000, 0, true},
		{true, 10_000, line - 1, 0, true},
		{true, line, 10_000_000_000, 0, true},
		{true, line - 1, line, 0, false},
		{true, line, line - 1, 0, false},
		{true, line - 1, line, 50_000, true},
		{true, 10_000_000, 10_000_000, 125_000, false},
	} {
		w := newWorld()
		w.facts.Prio = tt.prio
		ensure(t, w, both(tt.from))
		handles := func() (all []shaping.TCHandle) {
			for _, q := range w.devices[terms.SidePod].Tree.Qdiscs {
				all = append(all, q.Handle)
			}
			return all
		}
		was := handles()
		must.OK(t, must.Err(w.executor().Set(t.Context(), podID, func(c *shaping.Config) error {
			c.Egress.Rate, c.Egress.Burst = tt.to, tt.burst
			return nil
		})))
		must.Be(t, fmt.Sprintf("%+v: the queue is kept", tt), tt.kept, slices.Equal(was, handles()))
	}
}

// Records of releases before this one have the choices by the names of the directions, and
// so do those of this one: either reads the other's.
func TestRecordHasChoicesByName(t *testing.T) {
	const old = `{"version":1,"id":{"network":"net","containerID":"c1","ifName":"eth0"},"choices":{"ingress":{"majors":[7],"hookKind":1},"egress":{"majors":[8],"hookKind":1,"note":"n"}}}`
	r := must.Get(apply.UnmarshalRecord([]byte(old)))(t)
	if got := r.Choices[terms.Egress]; len(r.Choices) != 2 || got.Note != "n" || got.Majors[0] != 8 {
		t.Errorf("choices = %+v, want both, with the note at egress", r.Choices)
	}
	b := must.Get(r.Marshal())(t)
	must.Have(t, "the record", string(b), `"egress":{"majors":[8]`, `"ingress":{"majors":[7]`)
}

// What a DEL removed while another waited for the lock is not made again.
func TestEnsureOfWhatWasRemovedMeanwhile(t *testing.T) {
	w := newWorld()
	want := wantOf(both(10_000_000))
	want.Existing = true
	if _, err := w.executor().Ensure(t.Context(), want); !errors.Is(err, apply.ErrNotAttached) || len(w.log) != 0 {
		t.Errorf("Ensure = %v with the steps %v, want ErrNotAttached and none", err, w.log)
	}
	want.Existing = false
	must.OK(t, must.Err(w.executor().Ensure(t.Context(), want)))
	want.Existing = true
	must.OK(t, must.Err(w.executor().Ensure(t.Context(), want)))
}
