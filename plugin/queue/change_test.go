// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Packets that wait stay where they are while rate, bucket and limit change,
// and leave at the new rate.
func TestPrivilegedChangeKeepsPackets(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast", "bfifo")
	cases := map[string]struct{ from, slow, fast shaping.Tree }{
		"bands": {bandTree(1000, 9_100), bandTree(2000, 9_200), bandTree(12_500_000, 125_000)},
		"flat":  {flatTree(1000, 9_100, 500_000), flatTree(2000, 9_200, 400_000), flatTree(12_500_000, 125_000, 300_000)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			d.Run(t, "ping", "-c1", "-W2", "10.9.0.2") // neighbours know each other
			d.build(t, c.from, testutil.Program{FD: -1})
			send(t, d, 100, 1400)
			waiting := d.observe(t).Root().Stats
			if waiting.BacklogPackets < 80 || waiting.Drops != 0 {
				t.Fatalf("before the change: %+v, want at least 80 packets waiting and none dropped", waiting)
			}
			must.OK(t, queue.Change(d.Handle, d.index, &d.observe(t).Tree, &c.slow))
			got := d.observe(t)
			if diff := sameTree(c.slow, got.Tree); diff != "" {
				t.Errorf("Observe after Change differs (-want +got):\n%s", diff)
			}
			// The bucket is full again: 9,200 bytes are 6 packets.
			if s := got.Root().Stats; s.BacklogPackets < waiting.BacklogPackets-8 || s.Drops != 0 {
				t.Errorf("after the change: %+v, want the %d packets still waiting", s, waiting.BacklogPackets)
			}
			must.OK(t, queue.Change(d.Handle, d.index, &c.slow, &c.fast))
			testutil.Eventually(t, 3*time.Second, "all packets left", func() bool {
				s := d.observe(t).Root().Stats
				return s.BacklogPackets == 0 && s.Packets >= waiting.Packets+uint64(waiting.BacklogPackets) && s.Drops == 0
			})
			// And the tree still takes packets: the limit of the TBF's child
			// was not set to 0.
			d.Run(t, "ping", "-c1", "-W2", "10.9.0.2")
			if s := d.observe(t).Root().Stats; s.Drops != 0 {
				t.Errorf("after the change packets are dropped: %+v", s)
			}
		})
	}
}

func TestPrivilegedChangeOfClassfulTrees(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "htb", "pfifo_fast")
	d := newDevice(t)
	prog := testutil.VerdictProgram(t, "pw_test", 0)
	from := htbTree(1_250_000, 12_500)
	d.build(t, from, prog)
	to := htbTree(12_500_000, 125_000)
	to.Classes[0].Rate, to.Classes[0].Ceil = 1_000_000_000, 2_000_000_000
	to.Classes[0].Burst, to.Classes[0].CeilBurst = 100_000, 200_000
	must.OK(t, queue.Change(d.Handle, d.index, &from, &to))
	got := d.observe(t)
	if diff := sameTree(to, got.Tree); diff != "" {
		t.Errorf("Observe after Change differs (-want +got):\n%s", diff)
	}
	if got.Classifier == nil || got.Classifier.ProgramID != prog.ID {
		t.Errorf("after Change the classifier is %+v, want program %d", got.Classifier, prog.ID)
	}
}

func TestPrivilegedChangeOfPrio(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "prio", "bfifo")
	d := newDevice(t)
	prog := testutil.VerdictProgram(t, "pw_test", 0)
	from, to := prioTree(1_250_000, 12_500), prioTree(12_500_000, 125_000)
	to.Qdiscs[2].Limit, to.Qdiscs[3].Limit = 300_000, 900_000
	d.build(t, from, prog)
	must.OK(t, queue.Change(d.Handle, d.index, &from, &to))
	if diff := sameTree(to, d.observe(t).Tree); diff != "" {
		t.Errorf("Observe after Change of prio differs (-want +got):\n%s", diff)
	}
}

func TestChangeOfAnotherShape(t *testing.T) {
	other := bandTree(1000, 9000)
	other.Qdiscs[0].Handle = handle(9, 0)
	cases := map[string]struct{ from, to shaping.Tree }{
		"another leaf":      {bandTree(1000, 9000), flatTree(1000, 9000, 9000)},
		"another handle":    {bandTree(1000, 9000), other},
		"another depth":     {bandTree(1000, 9000), htbTree(1000, 9000)},
		"a missing qdisc":   {shaping.Tree{}, bandTree(1000, 9000)},
		"another htb class": {htbTree(1000, 9000), renumbered(htbTree(1000, 9000))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			// No handle: nothing is sent before the difference is seen.
			if err := queue.Change(nil, 1, &c.from, &c.to); !errors.Is(err, queue.ErrRebuild) {
				t.Errorf("Change = %v, want ErrRebuild", err)
			}
		})
	}
}

// TestWhatIsPlannedInPlaceIsChangedInPlace: a step that cannot be taken ends the plan of
// every look.
func TestWhatIsPlannedInPlaceIsChangedInPlace(t *testing.T) {
	trees := []func() shaping.Tree{
		func() shaping.Tree { return bandTree(1000, 9_100) },
		func() shaping.Tree { return flatTree(1000, 9_100, 500_000) },
		func() shaping.Tree { return prioTree(1_250_000, 12_500) },
		func() shaping.Tree { return htbTree(1_250_000, 12_500) },
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	inPlace, rebuilt := 0, 0
	for range 20_000 {
		tree := trees[rnd.IntN(len(trees))]
		want, got := tree(), tree()
		for range 1 + rnd.IntN(2) {
			disturb(rnd, &got)
		}
		diff, is := attach.TreeDiff(&want, &got)
		switch _, _, err := queue.Changes(&got, &want); {
		case diff == "":
		case !is:
			rebuilt++
		case err != nil:
			t.Fatalf("%q is planned in place, and cannot be: %v\nwant %+v\ngot %+v", diff, err, want, got)
		default:
			inPlace++
		}
	}
	if inPlace < 1000 || rebuilt < 1000 {
		t.Errorf("%d changes in place and %d not, want many of both", inPlace, rebuilt)
	}
}

// disturb changes one thing of a tree.
func disturb(rnd *rand.Rand, tree *shaping.Tree) {
	if len(tree.Qdiscs) == 0 {
		return
	}
	q := &tree.Qdiscs[rnd.IntN(len(tree.Qdiscs))]
	switch n := rnd.IntN(10); n {
	case 0:
		q.Rate++
	case 1:
		q.Burst *= 2
	case 2:
		q.Limit++
	case 3:
		q.Bands++
	case 4:
		q.DefaultClass++
	case 5:
		tree.Qdiscs = append(tree.Qdiscs, leaf("sfq", 0x77, handle(0x10, 9), 0))
	case 6:
		tree.Qdiscs = tree.Qdiscs[:len(tree.Qdiscs)-1]
	case 7:
		tree.Classes = append(tree.Classes, shaping.Class{Handle: handle(0x21, 9), Parent: handle(0x21, 0)})
	default:
		if len(tree.Classes) == 0 {
			return
		}
		if c := &tree.Classes[0]; n == 8 {
			c.Rate++
		} else {
			c.Parent, c.Handle = c.Parent+shaping.TCHandle(rnd.IntN(2)), c.Handle+shaping.TCHandle(rnd.IntN(2))
		}
	}
}

func renumbered(t shaping.Tree) shaping.Tree {
	t.Classes[0].Handle = handle(0x21, 3)
	return t
}
