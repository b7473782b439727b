// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

func inGroup(rate units.BitRate) func(*shaping.Limit) {
	return func(l *shaping.Limit) { l.Group = rate }
}

func grouped(t *testing.T, l *shaping.Limit, d terms.Direction, f shaping.Facts) (*shaping.Config, *shaping.Params) {
	t.Helper()
	cfg := limiting(d, l)
	p := must.Get(shaping.Compute(cfg, d, f, counter()))(t)
	return cfg, p
}

func TestComputeTreeOfAGroup(t *testing.T) {
	t.Parallel()
	const classes = `class 1:4 under 1:0 rate 312500 ceil 312500 burst 1562/1562 prio 0
class 1:1 under 1:4 rate 262144 ceil 50000000000 burst 262/4000000 prio 0
class 1:2 under 1:4 rate 125 ceil 50000000000 burst 1/4000000 prio 1
`
	const bands = `
root htb 1:0 default 2
1:1 tbf 2:0 rate 1250000 burst 9100 segment 9600
2:1 bfifo 3:0 limit 200000
1:2 tbf 4:0 rate 1250000 burst 9100 segment 9600
4:1 bfifo 5:0 limit 319000
`
	const filtered = bands + `1:3 bfifo 6:0 limit 1
` + classes + `class 1:3 under 1:0 rate 1250000 ceil 1250000 burst 9100/9100 prio 0
filter on 1:0 answers 1:0
`
	const plain = `
root htb 1:0 default 2
1:2 tbf 2:0 rate 1250000 burst 9100 segment 9600
2:1 bfifo 3:0 limit 62500
class 1:4 under 1:0 rate 312500 ceil 312500 burst 1562/1562 prio 0
class 1:2 under 1:4 rate 125 ceil 50000000000 burst 1/4000000 prio 1
filter on 1:0 answers 1:0
`
	hooked := func(l *shaping.Limit) { l.Mode = terms.ModeTCXPodSide }
	for name, tc := range map[string]struct {
		limit *shaping.Limit
		facts shaping.Facts
		where string
		tree  string
	}{
		"here":   {strict(10e6, inGroup(200e6)), here, `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, filtered},
		"full":   {strict(10e6, inGroup(200e6)), full, `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, filtered},
		"hooked": {strict(10e6, inGroup(200e6), hooked), full, `tcx-podside/tbf on pod: "pw_band" at egress/tcx`, bands + classes},
		"flat":   {strict(10e6, inGroup(200e6), flat), here, `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, plain},
	} {
		_, p := grouped(t, tc.limit, terms.Egress, tc.facts)
		if diff := cmp.Diff(tc.tree, "\n"+sketchOf(p)); diff != "" || !p.Divided || where(p) != tc.where {
			t.Errorf("%s: divided %v, %s, tree (-want +got):\n%s", name, p.Divided, where(p), diff)
		}
	}
	_, p := grouped(t, strict(10e6, inGroup(200e6)), terms.Egress, mtu(here, 65_535))
	must.Be(t, "bytes that pass uncut at the largest MTU", 65_600, p.Tree.Qdiscs[1].Segment)
}

// Whoever bypasses the limit would bypass the share, and what has no queue has no share.
func TestComputeWithoutAShare(t *testing.T) {
	t.Parallel()
	noHTB := here
	noHTB.HTB = false
	nowhere := here
	nowhere.Namespace = ""
	for name, tc := range map[string]struct {
		limit *shaping.Limit
		facts shaping.Facts
		why   string
	}{
		"no group":  {strict(100e6), here, ""},
		"elephants": {strict(100e6, inGroup(200e6), elephants), here, "light flows have no limit under elephants"},
		"policing":  {strict(100e6, inGroup(200e6), queue(terms.QueueNone)), here, "it has no queue"},
		"no HTB":    {strict(100e6, inGroup(200e6)), noHTB, "the kernel has no HTB"},
		// Nobody would divide for it: it would keep the share that it begins with.
		"no namespace": {strict(100e6, inGroup(200e6)), nowhere, ""},
	} {
		cfg, p := grouped(t, tc.limit, terms.Ingress, tc.facts)
		without := *cfg.Ingress
		without.Group = 0
		_, want := grouped(t, &without, terms.Ingress, tc.facts)
		if tc.facts.Namespace != "" {
			want.Group, want.NoShare = cfg.Ingress.Group, tc.why // for people
		}
		if diff := cmp.Diff(want, p); diff != "" || p.Divided {
			t.Errorf("%s: parameters (-without a group +with):\n%s", name, diff)
		}
	}
}

// A limit that is observed makes no queue in a group either, and says what would be.
func TestComputeObservedInAGroup(t *testing.T) {
	t.Parallel()
	for _, d := range terms.Directions {
		for name, tc := range map[string]struct {
			set []func(*shaping.Limit)
			why string
		}{
			"a member": {nil, ""},
			"outside":  {[]func(*shaping.Limit){elephants}, "light flows have no limit under elephants"},
		} {
			cfg := limiting(d, strict(100e6, append(tc.set, inGroup(200e6))...))
			cfg.Observe = true
			p := must.Get(shaping.Compute(cfg, d, here, counter()))(t)
			if p.Tree != nil || p.Divided || p.HasCeiling() || p.Datapath.Group != 0 || p.Group != 200e6 || p.NoShare != tc.why {
				t.Errorf("%v, %s: %+v, want no queue and no ceiling, and no share because of %q", d, name, p, tc.why)
			}
		}
	}
}

// At a share the classifier has what it has at a limit of that rate, other than the burst, which
// is the class's; and the ceiling stays where it is.
func TestDividerAt(t *testing.T) {
	t.Parallel()
	for _, d := range terms.Directions {
		cfg, p := grouped(t, strict(100e6, inGroup(200e6)), d, here)
		divider := shaping.NewDivider(cfg, here, p)
		_, steady := grouped(t, strict(20e6), d, here)
		classes, got := divider.At(units.BitRate(20e6).ByteRate())
		class, light := classes[0], classes[1]
		if class.Handle != p.Tree.Classes[0].Handle || class.Parent != p.Tree.Classes[0].Parent || class.Rate != 2_500_000 || class.Burst != 12_500 {
			t.Errorf("%v: class %+v, want the one of the tree at 20 Mbit/s with 5 ms of burst", d, class)
		}
		if light.Handle != p.Tree.Classes[1].Handle || light.Parent != class.Handle || light.Rate > 2_500_000*9/10 || light.Rate < 2_500_000*9/20 {
			t.Errorf("%v: class %+v of light packets, want half of what they may have of 20 Mbit/s or more", d, light)
		}
		if got.TotalRate != steady.Datapath.TotalRate || got.LightRate != steady.Datapath.LightRate || got.SketchRate != steady.Datapath.SketchRate {
			t.Errorf("%v: rates of the classifier are not those of the share", d)
		}
		must.Be(t, d.String()+": burst, that of the class", uint64(5_000_000<<6), got.TotalBurst)
		if got.CeilingRate != p.Datapath.CeilingRate || got.CeilingBurst != p.Datapath.CeilingBurst {
			t.Errorf("%v: the ceiling follows the share", d)
		}
		must.Be(t, fmt.Sprintf("%v: share of the classifier", d), class.Rate, shaping.SlotShare(&got))
		_, kept := grouped(t, strict(100e6, inGroup(200e6)), d, here)
		if divider.Keep(kept, &got, &shaping.Tree{}); kept.Datapath != got || !slices.Equal(kept.Tree.Classes[:2], classes) || len(kept.Tree.Classes) != len(p.Tree.Classes) {
			t.Errorf("%v: kept %+v and classes %+v, want those of the share", d, kept.Datapath, kept.Tree.Classes)
		}
		other := got
		other.LightPriority++
		if divider.Keep(kept, &other, &shaping.Tree{}); kept.Datapath == other {
			t.Errorf("%v: a priority that differs is taken for a share", d)
		}
		_, beyond := divider.At(units.BitRate(100e6).ByteRate() + 1)
		for name, slot := range map[string]*image.Config{"no share": {}, "a share beyond the limit": &beyond} {
			_, kept := grouped(t, strict(100e6, inGroup(200e6)), d, here)
			divider.Keep(kept, slot, &shaping.Tree{})
			must.Match(t, d.String()+": with "+name+" in the slot", p, kept)
		}
	}
	cfg, p := grouped(t, strict(100e6, inGroup(200e6)), terms.Ingress, here)
	if classes, _ := shaping.NewDivider(cfg, here, p).At(1); classes[0].Rate != units.MinRate.ByteRate() || classes[1].Rate == 0 {
		t.Errorf("classes %+v of the smallest share, want the lowest rate there is, and some of it for light packets", classes)
	}
}

// The ceiling of a group is behind the queue of each of its pods, one meter for each direction, or
// it says why there is none.
func TestComputeCeilingOfAGroup(t *testing.T) {
	t.Parallel()
	batch := here
	batch.Namespace = "batch"
	noCeiling := func(l *shaping.Limit) { l.NoCeiling = true }
	keys := map[uint64]string{}
	for _, d := range terms.Directions {
		for _, namespace := range []string{"batch", "batch2"} {
			facts := batch
			facts.Namespace = namespace
			_, one := grouped(t, strict(100e6, inGroup(200e6)), d, facts)
			_, other := grouped(t, strict(10e6, inGroup(200e6)), d, facts)
			dp := one.Datapath
			if !one.GroupCeiling || dp.Group == 0 || dp.Group != other.Datapath.Group || dp.GroupRate != other.Datapath.GroupRate {
				t.Errorf("%v of %s: pods of a group have %d and %d, want one meter", d, namespace, dp.Group, other.Datapath.Group)
			}
			if was, known := keys[dp.Group]; known {
				t.Errorf("%v of %s has the meter of %s", d, namespace, was)
			}
			keys[dp.Group] = d.String() + namespace
			// Another network with another default.
			_, lower := grouped(t, strict(10e6, inGroup(100e6)), d, facts)
			if was, known := keys[lower.Datapath.Group]; known {
				t.Errorf("%v of %s has two limits, and one has the meter of %s, which begins anew for each of them", d, namespace, was)
			}
			keys[lower.Datapath.Group] = d.String() + namespace + " with 100M"
			// A second has at most what is the target while nobody divides.
			burst := float64(dp.GroupBurst>>6) / 1e9
			if most := float64(shaping.BitRate(dp.GroupRate))/200e6 + burst; most > 1.02 || burst < 0.008 {
				t.Errorf("%v: a second has up to %.3f of the limit, want at most 1.02", d, most)
			}
		}
	}
	for name, tc := range map[string]struct {
		limit *shaping.Limit
		dir   terms.Direction
		facts shaping.Facts
		why   string
	}{
		"no ceiling of the pod": {strict(100e6, inGroup(200e6), noCeiling), terms.Egress, batch, "egressCeiling is off"},
		"an ifb":                {strict(100e6, inGroup(200e6), at(terms.PlaceIFB)), terms.Ingress, batch, "an ifb"},
		"no group":              {strict(100e6), terms.Ingress, batch, ""},
	} {
		_, p := grouped(t, tc.limit, tc.dir, tc.facts)
		if p.GroupCeiling || p.Datapath.Group != 0 || !strings.Contains(p.NoGroupCeiling, tc.why) || (tc.why == "") != (p.NoGroupCeiling == "") {
			t.Errorf("%s: a ceiling: %v, none because %q, want none because of %q", name, p.GroupCeiling, p.NoGroupCeiling, tc.why)
		}
	}
	_, p := grouped(t, strict(100e6, inGroup(200e6)), terms.Egress, batch)
	if p.LeaveCeiling("no TCX"); p.HasCeiling() || p.NoGroupCeiling != "no TCX" || p.NoCeiling != "no TCX" {
		t.Errorf("after its hook turned out to be taken: %+v", p)
	}
}
