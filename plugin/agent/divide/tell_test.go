// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package divide

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// What a group sent is the sum of its queues, with who sent most, and since when that is the limit.
func TestSumOfAGroup(t *testing.T) {
	queue := func(pod string) *engine.Share {
		return &engine.Share{Namespace: "batch", Pod: "batch/" + pod, Direction: terms.Egress, Group: 80_000_000}
	}
	r := &running{clock: mailbox.NewClock(), known: map[attach.ID]*joined{
		{ContainerID: "1"}: {shares: map[string]*engine.Share{"one": queue("one")}},
		// A second network of the pod.
		{ContainerID: "1", IfName: "net1"}: {shares: map[string]*engine.Share{"one too": queue("one")}},
		{ContainerID: "2"}: {
			shares:  map[string]*engine.Share{"two": queue("two"), "higher": {Namespace: "batch", Pod: "batch/two", Direction: terms.Egress, Group: 90_000_000}},
			outside: map[string]*engine.Undivided{"in": {Namespace: "batch", Pod: "batch/two", Direction: terms.Ingress, Group: 10_000_000}},
		},
	}}
	begun := time.Unix(1000, 0)
	type report struct {
		namespace string
		after     time.Duration
	}
	var reports []report
	r.onHeld = func(g *mailbox.Group) { reports = append(reports, report{g.Namespace, g.Held.Round(time.Second)}) }
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	told := map[key]*mailbox.Group{}
	for i, one := range []units.Bytes{1_000_000, 7_000_000, 9_000_000, 0} {
		// The loop came by once in two seconds, because the machine was busy.
		told = r.sum(map[string]Sent{"one": {2 * one, 2 * time.Second}, "two": {2_500_000, time.Second}, "in": {}}, told, at(i+1), time.Second)
		g := told[key{"batch", terms.Egress}]
		if atLimit := one >= 6_500_000; g.AtLimitSince.IsZero() == atLimit || atLimit && !g.AtLimitSince.Equal(at(1)) {
			t.Errorf("second %d: at the limit since %v, want that of its first second if it is at it", i, g.AtLimitSince)
		}
	}
	for second := range 1500 { // 25 minutes at the limit, which are told once
		r.groups = r.sum(map[string]Sent{"one": {9_500_000, time.Second}}, r.groups, at(second), time.Second)
		r.reportHeld(at(second), time.Second)
	}
	must.Be(t, "what is told, after ten minutes", report{"batch", longHeld}, must.Len(t, "reports", 1, reports)[0])
	held := &mailbox.Group{Group: terms.Group{AtLimitSince: begun}}
	for after, want := range map[time.Duration]bool{
		longHeld - time.Second: false, longHeld: true, longHeld + 500*time.Millisecond: true, longHeld + time.Second: false, 2 * longHeld: false,
	} {
		must.Be(t, fmt.Sprintf("held for %v: told", after), want, longHeldNow(held, begun.Add(after), time.Second))
	}
	want := map[key]*mailbox.Group{
		{"batch", terms.Egress}: {
			Group: terms.Group{
				Namespace: "batch", Direction: terms.Name(terms.Egress), Limit: 80_000_000, Pods: 2, Sent: 20_000_000, Largest: "batch/two", LargestPart: 1,
			},
			SentBytes: 44_000_000, Held: 2 * time.Second,
		},
		{"batch", terms.Ingress}: {Group: terms.Group{Namespace: "batch", Direction: terms.Name(terms.Ingress), Limit: 10_000_000, Outside: []string{"batch/two"}}},
	}
	must.Match(t, "groups", want, told)
	for k := range told {
		r.groups = maps.Clone(told)
		must.Be(t, "a group that was not told, when all were", false, r.untold())
		delete(r.groups, k)
		must.Be(t, fmt.Sprint("a group that was not told, without ", k), true, r.untold())
	}
}

// What a ceiling dropped is a sum that never falls: not when the limit that dropped most has gone,
// nor when it is made again.
func TestDroppedNeverFalls(t *testing.T) {
	r := &running{dropped: make(map[ceiling]drops)}
	k := key{"batch", terms.Egress}
	low, high := ceiling{k, 10_000_000}, ceiling{k, 20_000_000}
	g := &mailbox.Group{}
	for i, look := range []struct {
		of   ceiling
		now  drops
		want uint64
	}{{low, drops{5, 500}, 5}, {high, drops{100, 10_000}, 105}, {low, drops{6, 600}, 106}, {low, drops{6, 600}, 106}, {high, drops{2, 200}, 108}} {
		if r.drop(g, look.of, look.now); g.DroppedPackets != look.want || g.DroppedBytes != 100*look.want {
			t.Errorf("look %d: %d packets, %d bytes, want %d and 100 times that", i, g.DroppedPackets, g.DroppedBytes, look.want)
		}
	}
	r.known = map[attach.ID]*joined{{ContainerID: "1"}: {shares: map[string]*engine.Share{"one": {Namespace: "batch", Direction: terms.Egress, Group: 10_000_000}}}}
	must.Be(t, "packets dropped, a second later", 108, r.sum(nil, map[key]*mailbox.Group{k: g}, time.Unix(1000, 0), time.Second)[k].DroppedPackets)
}

// A queue outside of the division that cannot be looked at any more, because its slot was made
// again, joins again at the next look.
func TestQueueOutsideJoinsAgain(t *testing.T) {
	l := New(slog.New(slog.DiscardHandler))
	j := &joined{looks: 3, outside: map[string]*engine.Undivided{"in": {}}}
	l.JoinOutside("batch", 10_000_000, "in", failing{})
	must.Be(t, "lost before it was looked at", false, j.lost(l))
	l.Divide(Tick)
	must.Be(t, "lost when it cannot be looked at", true, j.lost(l))
	// What was well for so long and is lost, or changed, is tried again at once if that fails.
	for _, j := range []*joined{{looks: 100, shares: map[string]*engine.Share{"lost": {}}}, {looks: 100, mark: 1, failed: true}} {
		if looks, is := j.joinsAgain(0, l); looks != 0 || !is {
			t.Errorf("joins again %v, after %d looks, want after none", is, looks)
		}
	}
}

// An attachment that cannot be looked at, as that of a pod that is gone, is looked at less and less often.
func TestLooksAtWhatFailedBecomeRare(t *testing.T) {
	failed, joined := &joined{failed: true}, &joined{}
	var at []int
	for range 1000 {
		failed.looks++
		joined.looks++
		if failed.again() {
			at = append(at, failed.looks)
		}
		if joined.again() {
			t.Errorf("an attachment without any limit of a group is looked at again after %d s", joined.looks)
		}
	}
	must.Match(t, "looked at after these seconds", []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768}, at)
}

type failing struct{}

func (failing) Look(time.Duration, bool) (sent, waiting units.Bytes, err error) {
	return 0, 0, errors.New("no slot")
}

func (failing) Set(units.ByteRate) error { return nil }
func (failing) Changed() bool            { return false }
func (failing) Unsure() bool             { return false }
func (failing) Still(time.Duration) bool { return false }
