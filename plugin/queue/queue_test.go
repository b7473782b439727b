// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

var _ = mark.EveryTest(mark.Kernels, "many kernels lack prio, and queues are what the package is about")

const root = shaping.RootParent

// handle writes major:minor.
func handle(major, minor uint32) shaping.TCHandle { return shaping.TCHandle(major<<16 | minor) }

func tbf(major uint32, parent shaping.TCHandle, rate units.ByteRate, burst units.Bytes) shaping.Qdisc {
	return shaping.Qdisc{Kind: shaping.KindTBF, Handle: handle(major, 0), Parent: parent, Rate: rate, Burst: burst}
}

func leaf(kind shaping.QdiscKind, major uint32, parent shaping.TCHandle, limit units.Bytes) shaping.Qdisc {
	return shaping.Qdisc{Kind: kind, Handle: handle(major, 0), Parent: parent, Limit: limit}
}

// bandTree is the tree of this machine: TBF over pfifo_fast.
func bandTree(rate units.ByteRate, burst units.Bytes) shaping.Tree {
	return shaping.Tree{Qdiscs: []shaping.Qdisc{
		tbf(0xa1b2, root, rate, burst),
		leaf(shaping.KindPfifoFast, 0xa1b3, handle(0xa1b2, 1), 0),
	}}
}

func flatTree(rate units.ByteRate, burst, limit units.Bytes) shaping.Tree {
	return shaping.Tree{Qdiscs: []shaping.Qdisc{
		tbf(0xa1b2, root, rate, burst),
		leaf(shaping.KindBfifo, 0xa1b3, handle(0xa1b2, 1), limit),
	}}
}

func prioTree(rate units.ByteRate, burst units.Bytes) shaping.Tree {
	return shaping.Tree{
		Qdiscs: []shaping.Qdisc{
			tbf(0x10, root, rate, burst),
			{Kind: shaping.KindPrio, Handle: handle(0xffef, 0), Parent: handle(0x10, 1), Bands: 2},
			leaf(shaping.KindBfifo, 0x12, handle(0xffef, 1), 200_000),
			leaf(shaping.KindBfifo, 0x13, handle(0xffef, 2), 500_000),
		},
		Filter: &shaping.Filter{Parent: handle(0xffef, 0), ClassID: handle(0xffef, 0)},
	}
}

// htbTree is the tree with a bypass: HTB's direct queue beside one class.
func htbTree(rate units.ByteRate, burst units.Bytes) shaping.Tree {
	return shaping.Tree{
		Qdiscs: []shaping.Qdisc{
			{Kind: shaping.KindHTB, Handle: handle(0x21, 0), Parent: root},
			tbf(0x22, handle(0x21, 2), rate, burst),
			leaf(shaping.KindPfifoFast, 0x23, handle(0x22, 1), 0),
		},
		Classes: []shaping.Class{{
			Handle: handle(0x21, 2), Parent: handle(0x21, 0), Rate: 50_000_000_000, Ceil: 50_000_000_000,
			Burst: 1 << 20, CeilBurst: 1 << 20,
		}},
		Filter: &shaping.Filter{Parent: handle(0x21, 0), ClassID: handle(0x21, 0)},
	}
}

// dividedTree is that of a pod with a share of a group's limit.
func dividedTree(share units.ByteRate) shaping.Tree {
	top, most := handle(0x21, 4), units.MaxRate.ByteRate()
	cutting := func(major uint32, class shaping.TCHandle) shaping.Qdisc {
		q := tbf(major, class, 12_500_000, 98_486)
		q.Segment = 12 * shaping.SegmentUnit
		return q
	}
	return shaping.Tree{
		Qdiscs: []shaping.Qdisc{
			{Kind: shaping.KindHTB, Handle: handle(0x21, 0), Parent: root, DefaultClass: 2},
			cutting(0x22, handle(0x21, 1)), cutting(0x24, handle(0x21, 2)),
			leaf(shaping.KindBfifo, 0x23, handle(0x22, 1), 200_000), leaf(shaping.KindBfifo, 0x25, handle(0x24, 1), 300_000),
		},
		Classes: []shaping.Class{
			{Handle: top, Parent: handle(0x21, 0), Rate: share, Ceil: share, Burst: share.Bytes(time.Second / 2), CeilBurst: share.Bytes(time.Second / 2)},
			{Handle: handle(0x21, 1), Parent: top, Rate: 4096, Ceil: most, Burst: 4, CeilBurst: 4_000_000},
			{Handle: handle(0x21, 2), Parent: top, Rate: 125, Ceil: most, Burst: 1, CeilBurst: 4_000_000, Prio: 1},
		},
	}
}

type device struct {
	*testutil.NetNS
	peer  *testutil.NetNS
	index int
}

// newDevice makes a pair; the device is one end, in a namespace of its own.
func newDevice(tb testing.TB) *device {
	tb.Helper()
	d := &device{NetNS: testutil.NewNetNS(tb), peer: testutil.NewNetNS(tb)}
	i, _ := testutil.VethPair(tb,
		testutil.End{NetNS: d.NetNS, Name: "eth0", CIDRs: []string{"10.9.0.1/24"}},
		testutil.End{NetNS: d.peer, Name: "eth0", CIDRs: []string{"10.9.0.2/24"}})
	d.index = i.Index
	return d
}

func (d *device) observe(tb testing.TB) *queue.Device {
	tb.Helper()
	got := must.Get(queue.Observe(d.Handle, d.index))(tb)
	single := *d.Handle
	single.Single = true
	if alone, err := queue.Observe(&single, d.index); err != nil || !cmp.Equal(alone.Tree, got.Tree) || alone.HookQdisc != got.HookQdisc {
		tb.Errorf("read one by one the device has %+v, %v, want %+v", alone, err, got)
	}
	return got
}

// testSlot is larger than any class of a tree.
const testSlot = 0xabcd

func (d *device) build(tb testing.TB, tree shaping.Tree, prog testutil.Program) {
	tb.Helper()
	must.OK(tb, queue.Build(d.Handle, d.index, &tree, queue.Classifier{ProgramFD: prog.FD, Name: "pw_test", Slot: testSlot}))
}

// sameTree allows for what the kernel rounds: a bucket is a number of ticks of
// 64 ns.
func sameTree(t *testing.T, after string, want, got shaping.Tree) {
	t.Helper()
	for _, tree := range []*shaping.Tree{&want, &got} { // the kernel tells classes in no order
		tree.Classes = slices.Clone(tree.Classes)
		slices.SortFunc(tree.Classes, func(a, b shaping.Class) int { return int(a.Handle) - int(b.Handle) })
	}
	closeTo := func(a, b units.Bytes, rate units.ByteRate) bool {
		tick := units.Bytes(uint64(rate)*64/1_000_000_000) + 1
		return a <= b+tick && b <= a+tick
	}
	for i := range got.Qdiscs {
		if i < len(want.Qdiscs) && closeTo(want.Qdiscs[i].Burst, got.Qdiscs[i].Burst, want.Qdiscs[i].Rate) {
			got.Qdiscs[i].Burst = want.Qdiscs[i].Burst
		}
	}
	for i := range got.Classes {
		if i < len(want.Classes) && closeTo(want.Classes[i].Burst, got.Classes[i].Burst, want.Classes[i].Rate) {
			got.Classes[i].Burst, got.Classes[i].CeilBurst = want.Classes[i].Burst, want.Classes[i].CeilBurst
		}
	}
	must.Match(t, "what Observe tells after "+after, want, got)
}

func TestPrivilegedBuildObserveRemove(t *testing.T) {
	testutil.RequireRoot(t)
	cases := map[string]struct {
		tree  shaping.Tree
		needs []string
	}{
		"bands at 10 Mbit/s":                   {bandTree(1_250_000, 12_500), []string{"tbf", "pfifo_fast"}},
		"bands at the lowest rate":             {bandTree(125, 9_100), []string{"tbf", "pfifo_fast"}},
		"bands just below 2^32 bytes a second": {bandTree(1<<32-1, 42_949_672), []string{"tbf", "pfifo_fast"}},
		"bands at 2^32 bytes a second":         {bandTree(1<<32, 42_949_672), []string{"tbf", "pfifo_fast"}},
		"bands at 400 Gbit/s":                  {bandTree(50_000_000_000, 500_000_000), []string{"tbf", "pfifo_fast"}},
		"flat":                                 {flatTree(12_500_000, 123_500, 625_000), []string{"tbf", "bfifo"}},
		"prio under tbf":                       {prioTree(1_250_000, 12_500), []string{"tbf", "prio", "bfifo", "bpf"}},
		"htb with a bypass":                    {htbTree(1_250_000, 12_500), []string{"tbf", "htb", "pfifo_fast", "bpf"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			testutil.RequireQdisc(t, c.needs...)
			d := newDevice(t)
			before := d.Run(t, "tc", "qdisc", "show", "dev", "eth0")
			prog := testutil.VerdictProgram(t, "pw_test", 0)
			if name == "flat" { // another party's wish that there is none
				d.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "noqueue")
			}
			if got := d.observe(t); got.Root() != nil || len(got.Tree.Qdiscs) != 0 {
				t.Fatalf("Observe of a new device = %+v, want nothing", got.Tree)
			}
			d.build(t, c.tree, prog)
			got := d.observe(t)
			sameTree(t, "Build", c.tree, got.Tree)
			must.Be(t, "known without a record", true, got.Made())
			if c.tree.Filter != nil && (got.Classifier == nil || got.Classifier.ProgramID != prog.ID ||
				got.Classifier.Name != "pw_test" || got.Classifier.ClassID != c.tree.Filter.ClassID|testSlot) {
				t.Errorf("filter = %+v, want program %d pw_test with slot %#x", got.Classifier, prog.ID, testSlot)
			}
			// Packets pass, and are counted.
			d.Run(t, "ping", "-c1", "-W2", "10.9.0.2")
			if n := d.observe(t).Root().Stats.Packets; n == 0 {
				t.Error("the root qdisc counted no packet")
			}
			r := c.tree.Qdiscs[0]
			for range 2 {
				must.OK(t, queue.Remove(d.Handle, d.index, r.Kind, r.Handle)) // also if it is gone
			}
			must.Be(t, "qdiscs after Remove", before, d.Run(t, "tc", "qdisc", "show", "dev", "eth0"))
		})
	}
}

// A large bucket at a low rate takes so long that 32 bits of ticks do not hold
// the time: they end at 275 s, which is 550 kB at 2,000 bytes/s. The kernel's
// bucket must be of 4.2 MB all the same.
func TestPrivilegedBuildLongBucket(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "bfifo")
	d := newDevice(t)
	d.build(t, flatTree(2_000, 4_200_000, 8_000_000), testutil.Program{FD: -1})
	send(t, d, 1000, 2000)
	testutil.Eventually(t, 3*time.Second, "2 MB leave within the bucket of 4.2 MB", func() bool {
		return d.observe(t).Root().Stats.Bytes > 2_000_000
	})
}

// A step that fails takes back those before it.
func TestPrivilegedBuildFailureLeavesNothing(t *testing.T) {
	testutil.RequireQdisc(t, "htb", "tbf", "pfifo_fast")
	d := newDevice(t)
	tree := htbTree(1_250_000, 12_500)
	must.Fail(t, "Build with a bad program", queue.Build(d.Handle, d.index, &tree, queue.Classifier{ProgramFD: 9999, Name: "pw_test"}))
	must.Len(t, "qdiscs that a failed Build left", 0, d.observe(t).Tree.Qdiscs)
	bad := shaping.Tree{Qdiscs: []shaping.Qdisc{tbf(7, root, 0, 9000)}}
	must.Fail(t, "Build with rate 0", queue.Build(d.Handle, d.index, &bad, queue.Classifier{}), "rate is 0")
	must.Fail(t, "Build on no device", queue.Build(d.Handle, 4711, &tree, queue.Classifier{}))
	must.OK(t, queue.Remove(d.Handle, 4711, shaping.KindTBF, handle(7, 0)))
	must.Is(t, "Observe of no device", hostif.ErrNoDevice, must.Err(queue.Observe(d.Handle, 4711)))
}

// send sends UDP datagrams of size bytes of payload from the device's end. Any of them
// may be refused for an earlier one, since nobody listens.
func send(tb testing.TB, d *device, count, size int) {
	tb.Helper()
	script := fmt.Sprintf("exec 3>/dev/udp/10.9.0.2/9; b=$(printf '%%0%dd' 0); for ((i=0;i<%d;i++)); do printf %%s \"$b\" >&3; done; true", size, count)
	d.Run(tb, "bash", "-c", script)
}

// What goes past the shaper must not depend on a short queue of the driver's.
func TestPrivilegedHTBDirectQueue(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "htb", "pfifo_fast", "bpf")
	d := newDevice(t)
	must.OK(t, d.Handle.SetTxQueueLen(d.index, 5))
	d.build(t, htbTree(1_250_000, 12_500), testutil.VerdictProgram(t, "pw_test", 0))
	must.Have(t, "the queues", d.Run(t, "tc", "qdisc", "show", "dev", "eth0"), "direct_qlen 1000")
}

// One list has the counters of every device's root, and no others.
func TestPrivilegedRootStats(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "bfifo", "clsact")
	d := newDevice(t)
	second, _ := testutil.VethPair(t,
		testutil.End{NetNS: d.NetNS, Name: "eth1", CIDRs: []string{"10.9.1.1/24"}},
		testutil.End{NetNS: d.peer, Name: "eth1", CIDRs: []string{"10.9.1.2/24"}})
	testutil.VethPair(t, testutil.End{NetNS: d.NetNS, Name: "plain"}, testutil.End{NetNS: d.peer, Name: "plain"})
	tree := flatTree(1_250_000, 12_500, 20_000)
	for _, index := range []int{d.index, second.Index} {
		must.OK(t, queue.Build(d.Handle, index, &tree, queue.Classifier{}))
	}
	d.Run(t, "tc", "qdisc", "add", "dev", "eth0", "clsact")
	d.Run(t, "ping", "-c7", "-i0.01", "-W2", "10.9.1.2")
	all, err := queue.RootStats(d.Handle)
	if err != nil || len(all) != 2 {
		t.Fatalf("RootStats() = %+v, %v, want those of two devices", all, err)
	}
	if got := all[second.Index]; got.Packets < 7 || got.Bytes < 7*98 || got.Packets <= all[d.index].Packets {
		t.Errorf("RootStats() = %+v, want seven pings on ifindex %d alone", all, second.Index)
	}
	must.Be(t, "RootStats() without any queue", 0, len(must.Get(queue.RootStats(d.peer.Handle))(t)))
}

// A pfifo_fast below another qdisc has the length that its tree wants, whatever
// txqueuelen the device had.
func TestPrivilegedBuildBandLength(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	for name, txQueueLen := range map[string]int{"usual device": 1000, "device without a queue": 0} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			must.OK(t, d.Handle.SetTxQueueLen(d.index, txQueueLen))
			tree := bandTree(12_500, 9_200)
			tree.Qdiscs[1].PacketLimit = 16
			d.build(t, tree, testutil.Program{FD: -1})
			send(t, d, 100, 1400)
			// 6 packets leave with the bucket and one every 0.1 s by the clock:
			// on a slow machine some do between the last packet and the look.
			if s := d.observe(t).Root().Stats; s.BacklogPackets < 13 || s.BacklogPackets > 16 || s.Drops < 60 {
				t.Errorf("%d packets wait and %d were dropped, want 16 waiting, or a few less, and the rest dropped",
					s.BacklogPackets, s.Drops)
			}
		})
	}
}

// Packets that wait stay where they are while rate, bucket and limit change,
// and leave at the new rate.
func TestPrivilegedChangeKeepsPackets(t *testing.T) {
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
			sameTree(t, "Change", c.slow, got.Tree)
			// The bucket is full again: 9,200 bytes are 6 packets.
			if s := got.Root().Stats; s.BacklogPackets < waiting.BacklogPackets-8 || s.Drops != 0 {
				t.Errorf("after the change: %+v, want the %d packets still waiting", s, waiting.BacklogPackets)
			}
			must.OK(t, queue.Change(d.Handle, d.index, &c.slow, &c.fast))
			testutil.Eventually(t, 3*time.Second, "all packets left", func() bool {
				s := d.observe(t).Root().Stats
				return s.BacklogPackets == 0 && s.Packets >= waiting.Packets+waiting.BacklogPackets && s.Drops == 0
			})
			// And the tree still takes packets: the limit of the TBF's child
			// was not set to 0.
			d.Run(t, "ping", "-c1", "-W2", "10.9.0.2")
			must.Be(t, "packets dropped after the change", 0, d.observe(t).Root().Stats.Drops)
		})
	}
}

func TestPrivilegedChangeOfClassfulTrees(t *testing.T) {
	htb := htbTree(12_500_000, 125_000)
	htb.Classes[0].Rate, htb.Classes[0].Ceil = 1_000_000_000, 2_000_000_000
	htb.Classes[0].Burst, htb.Classes[0].CeilBurst = 100_000, 200_000
	prio := prioTree(12_500_000, 125_000)
	prio.Qdiscs[2].Limit, prio.Qdiscs[3].Limit = 300_000, 900_000
	for kind, change := range map[string]struct{ from, to shaping.Tree }{
		"htb": {htbTree(1_250_000, 12_500), htb}, "prio": {prioTree(1_250_000, 12_500), prio},
	} {
		t.Run(kind, func(t *testing.T) {
			testutil.RequireQdisc(t, "tbf", "bfifo", "pfifo_fast", kind)
			d := newDevice(t)
			prog := testutil.VerdictProgram(t, "pw_test", 0)
			d.build(t, change.from, prog)
			must.OK(t, queue.Change(d.Handle, d.index, &change.from, &change.to))
			got := d.observe(t)
			sameTree(t, "Change", change.to, got.Tree)
			if got.Classifier == nil || got.Classifier.ProgramID != prog.ID {
				t.Errorf("after Change the classifier is %+v, want program %d", got.Classifier, prog.ID)
			}
		})
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
			must.Is(t, "Change", queue.ErrRebuild, queue.Change(nil, 1, &c.from, &c.to))
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

// A changed share refills nothing: a queue that is changed at every tick lets out no more than
// one that is not.
func TestPrivilegedChangeOfAShareRefillsNothing(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "htb", "bfifo")
	d := newDevice(t)
	d.Run(t, "ping", "-c1", "-W2", "10.9.0.2") // neighbours know each other
	const share units.ByteRate = 10_000
	tree := dividedTree(share)
	d.build(t, tree, testutil.Program{FD: -1})
	sameTree(t, "Build", tree, d.observe(t).Tree)
	if !d.observe(t).Made() {
		t.Error("a queue with a share is not known without a record")
	}
	begun := time.Now()
	before := d.observe(t).Root().Stats.Bytes
	send(t, d, 100, 1400)
	changes, held := 0, queue.NewShare(d.Handle, d.index, tree.Classes[0].Handle)
	testutil.Eventually(t, 10*time.Second, "a second has passed", func() bool {
		class := tree.Classes[0]
		class.Rate += units.ByteRate(changes % 2) // the kernel may leave out what changes nothing
		class.Ceil = class.Rate
		must.OK(t, held.Change(&class))
		class = tree.Classes[1]
		class.Rate += units.ByteRate(changes % 2)
		must.OK(t, held.Change(&class))
		changes++
		return time.Since(begun) > time.Second && changes >= 20
	})
	sent := units.Bytes(d.observe(t).Root().Stats.Bytes - before)
	// The burst, and two packets: the kernel lets one out that it has not all credit for.
	must.Within(t, fmt.Sprintf("what left with %d changes", changes), share.Bytes(time.Second)/2, share.Bytes(time.Since(begun))+5_000+2*1_500, sent)
}

// A light packet does not wait until the share has paid for the heavy one before it, and the counters of
// the root know what waits.
func TestPrivilegedLightPacketsDoNotWaitForWhatAShareOwes(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "htb", "bfifo")
	d := newDevice(t)
	d.Run(t, "ping", "-c1", "-W2", "10.9.0.2") // neighbours know each other
	// The share pays for a heavy packet in 29 seconds, and what is heavy has 125 bytes a second of its own: 12 seconds.
	d.build(t, dividedTree(50), testutil.Program{FD: -1})
	from := d.peer.ListenUDP(t, "10.9.0.2:9")
	next := func() int {
		n, _, err := from.ReadFrom(make([]byte, 2000))
		must.OK(t, err)
		return n
	}
	const heavy, light = 1400, 100
	send(t, d, 10, heavy)
	must.OK(t, from.SetReadDeadline(time.Now().Add(10*time.Second)))
	must.Be(t, "bytes that came first", heavy, next())
	must.OK(t, d.Do(func() error {
		to, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(to, unix.SOL_SOCKET, unix.SO_PRIORITY, int(handle(0x21, 1))),
			unix.Sendto(to, make([]byte, light), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 9, 0, 2}}),
			unix.Close(to))
	}))
	// A second heavy one may have left before it, if something small of the kernel's was sent first.
	must.OK(t, from.SetReadDeadline(time.Now().Add(8*time.Second)))
	for n := heavy; n != light; {
		n = next()
	}
	stats, err := queue.NewShare(d.Handle, d.index, handle(0x21, 4)).Stats()
	if err != nil || stats.BacklogPackets < 2 || stats.Packets < 2 {
		t.Errorf("root has %+v, %v, want at least two packets that wait", stats, err)
	}
	must.Is(t, "Stats() of another root", queue.ErrNoQdisc, must.Err(queue.NewShare(d.Handle, d.index, handle(0x20, 4)).Stats()))
}

// Whoever changes shares at every tick does not wake those who look for changes of others.
func TestPrivilegedChangesOfAQuietHandleAreNoEvents(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "htb", "bfifo")
	d := newDevice(t)
	tree := dividedTree(10_000)
	d.build(t, tree, testutil.Program{FD: -1})
	events := must.Get(rtnl.WatchDevices(d.NetNS.NetNS))(t)
	defer func() { must.OK(t, events.Close()) }()
	h := must.Get(hostif.NewHandle(d.NetNS.NetNS))(t)
	closed := sync.OnceFunc(h.Close)
	defer closed()
	must.OK(t, h.Quiet())
	next := func(last time.Duration) ([]int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), last)
		defer cancel()
		return events.Next(ctx)
	}
	change := func(h *hostif.Handle) {
		tree.Classes[0].Rate++
		tree.Classes[0].Ceil++
		must.OK(t, queue.NewShare(h, d.index, tree.Classes[0].Handle).Change(&tree.Classes[0]))
	}
	change(h)
	must.OK(t, must.Err(queue.NewShare(h, d.index, handle(0x21, 4)).Stats())) // kernels before 6.7 tell all who watch
	must.Fail(t, "a word of a change by a quiet handle", must.Err(next(200*time.Millisecond)))
	change(d.Handle)
	must.Match(t, "devices changed by another handle", []int{d.index}, must.Get(next(5*time.Second))(t))
	// It is quiet for a watch that comes later, too.
	later := must.Get(rtnl.WatchDevices(d.NetNS.NetNS))(t)
	must.OK(t, events.Close())
	events = later
	change(h)
	must.Fail(t, "a word of a change by a quiet handle to a later watch", must.Err(next(200*time.Millisecond)))
	// Its port may be another socket's when it is closed.
	closed()
	change(d.Handle)
	must.Match(t, "devices changed by another handle", []int{d.index}, must.Get(next(5*time.Second))(t))
}
