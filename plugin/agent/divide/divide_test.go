// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package divide_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/divide"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// queue sends what its share allows while it has something to send.
type queue struct {
	share   units.ByteRate
	sent    units.Bytes
	busy    bool
	changed bool
	sets    int
	asked   int
	looks   int
	fails   error
	last    time.Duration
	// told is what Look returned last.
	told units.Bytes
}

func (q *queue) Look(now time.Duration, ask bool) (sent, waiting units.Bytes, err error) {
	q.looks++
	if ask {
		q.asked++
	}
	if q.busy {
		q.sent += q.share.Bytes(now - q.last)
		waiting = 1e9
	}
	q.last, q.told = now, q.sent
	return q.sent, waiting, q.fails
}

func (q *queue) Still(now time.Duration) bool {
	if q.busy || q.fails != nil || q.sent != q.told {
		return false
	}
	q.last = now
	return true
}

func (q *queue) Unsure() bool { return q.busy }

func (q *queue) Set(share units.ByteRate) error {
	q.sets++
	if q.fails == nil {
		q.share, q.changed = share, false
	}
	return q.fails
}

func (q *queue) Changed() bool { return q.changed }

// group returns a loop with queues that joined one group of 200 Mbit/s.
func group(queues ...*queue) *divide.Loop {
	l := divide.New(slog.New(slog.DiscardHandler))
	for i, q := range queues {
		l.Join("n/ingress", 200_000_000, fmt.Sprint(i), q, q.share, 25_000_000)
	}
	return l
}

func ticks(l *divide.Loop, from, n int) {
	for i := range n {
		l.Divide(time.Duration(from+i) * divide.Tick)
	}
}

// between fails the test unless a share is in a range.
func between(t *testing.T, whose string, least, most, share units.ByteRate) {
	t.Helper()
	must.Within(t, "the share "+whose, least, most, share)
}

func TestLoopDividesAmongWhoSends(t *testing.T) {
	busy, idle := &queue{share: 1000, busy: true}, &queue{share: 1000}
	l := group(busy, idle)
	ticks(l, 0, 20)
	must.Be(t, "share of who sends: all", 25_000_000, busy.share)
	must.Be(t, "share of the other: the parked one", 1_250_000, idle.share)
	idle.busy = true
	ticks(l, 20, 20)
	between(t, "of one of two that send", 12_000_000, 13_200_000, busy.share)
	l.Leave("1")
	ticks(l, 40, 20)
	if busy.share != 25_000_000 || l.Has("1") || !l.Has("0") {
		t.Errorf("share %v after the other one left, want all", busy.share)
	}
}

// Two networks have different defaults for a namespace: the lowest limit holds for all its pods as long as a pod
// has it, whoever joins first.
func TestLoopDividesTheLowestLimit(t *testing.T) {
	for _, limits := range [][]units.BitRate{{200_000_000, 100_000_000}, {100_000_000, 200_000_000}} {
		queues := []*queue{{share: 1000, busy: true}, {share: 1000, busy: true}}
		l := divide.New(slog.New(slog.DiscardHandler))
		low := ""
		for i, q := range queues {
			l.Join("n", limits[i], fmt.Sprint(i), q, q.share, 25_000_000)
			if limits[i] == 100_000_000 {
				low = fmt.Sprint(i)
			}
		}
		ticks(l, 0, 20)
		between(t, fmt.Sprint("of both with limits ", limits), 12_000_000, 13_000_000, queues[0].share+queues[1].share)
		l.Leave(low)
		ticks(l, 20, 20)
		must.Be(t, fmt.Sprintf("limits %v: share when the pod with the lower one is gone", limits), 25_000_000, max(queues[0].share, queues[1].share))
	}
}

// A pod whose own limit became lower while its queue had a larger share: nothing else holds both of its bands.
func TestLoopHoldsTheLimitOfAPod(t *testing.T) {
	q := &queue{share: 25_500_000}
	ticks(group(q), 0, 1)
	must.Be(t, "share of an idle queue after a tick: its own limit", 25_000_000, q.share)
}

// Another process wrote the limits of a queue anew, as a repair does.
func TestLoopComesBackAfterOthers(t *testing.T) {
	q := &queue{share: 1000, busy: true}
	l := group(q)
	ticks(l, 0, 20)
	q.share, q.changed = 77, true
	ticks(l, 20, 1)
	must.Be(t, "share that was divided, again", 25_000_000, q.share)
}

func TestLoopWaitsForWhoIsBusyAndForgetsWhoIsGone(t *testing.T) {
	gone, other := &queue{busy: true}, &queue{busy: true, share: 1000}
	l := divide.New(slog.New(slog.DiscardHandler))
	l.Join("n", 200_000_000, "gone", gone, 1000, 0)
	l.Join("n", 200_000_000, "other", other, 1000, 0)
	ticks(l, 0, 5)
	gone.fails = errors.New("no such device")
	ticks(l, 5, 20)
	if l.Has("gone") || other.share < 24_000_000 {
		t.Errorf("share %v of the queue that is left, want all", other.share)
	}
	looked := gone.last
	ticks(l, 25, 5)
	must.Be(t, "last look at a queue that is gone", looked, gone.last)
	// Only what Set says can be tried again.
	waits := &waiting{queue: queue{busy: true}}
	l.Join("n", 200_000_000, "waits", waits, 1000, 0)
	if ticks(l, 30, 3); waits.tried < 2 || !l.Has("waits") {
		t.Errorf("%d attempts at a queue that is being changed, want one each tick", waits.tried)
	}
}

// waiting is a queue that others are changing.
type waiting struct {
	queue
	tried int
}

func (w *waiting) Set(units.ByteRate) error {
	w.tried++
	return fmt.Errorf("set: %w", engine.ErrBusy)
}

// What becomes less is changed first, and no more than so much at a tick.
func TestLoopBoundsItsChanges(t *testing.T) {
	l := divide.New(slog.New(slog.DiscardHandler))
	large := &queue{share: 25_000_000}
	small := make([]*queue, 201)
	for i := range 200 {
		small[i] = &queue{share: 10, busy: true}
		l.Join("small", 200_000_000, fmt.Sprint(i), small[i], 10, 0)
	}
	l.Join("large", 200_000_000, "large", large, large.share, 0)
	small[200] = &queue{share: 10, busy: true} // which wants what the large one has
	l.Join("large", 200_000_000, "other", small[200], 10, 0)
	changes := func() (n int) {
		for _, q := range small {
			n += q.sets
		}
		return n + large.sets
	}
	ticks(l, 0, 1)
	must.Be(t, "changes in the first tick: 3,000 in a second", 60, changes())
	ticks(l, 1, 2)                // 180 changes, and the first tick of its own begins the ledger
	if large.share != 7_812_500 { // a quarter of what it had, and a quarter more
		t.Errorf("the share that becomes smaller is %v, want it changed before those that grow", large.share)
	}
	ticks(l, 3, 2)
	must.Be(t, "more than 300 changes in five ticks", false, changes() > 300)
}

// However many queues are busy, the kernel is asked about a few of them at a tick, in turns. All groups are divided at
// each tick.
func TestKernelIsAskedInTurns(t *testing.T) {
	l := divide.New(slog.New(slog.DiscardHandler))
	var all []*queue
	for i := range 60 {
		q := &queue{share: 1000, busy: i%3 != 0}
		all = append(all, q)
		l.Join(fmt.Sprint(i/6), 200_000_000, fmt.Sprint(i), q, q.share, 0)
	}
	l.Leave("1")
	ticks(l, 0, 5)
	sum := 0
	for _, q := range all {
		sum += q.asked
	}
	must.Be(t, "questions in five ticks: ten at one of them", 10, sum)
	ticks(l, 5, 34)
	for i, q := range all[2:] {
		if want := 2; q.busy && q.asked/want != 1 || !q.busy && q.asked != 0 {
			t.Errorf("queue %d, busy %v, was asked %d times in 39 ticks, want %d or once more if it is busy", i+2, q.busy, q.asked, want)
		}
		if quarter := units.ByteRate(200_000_000 / 8 / 4); q.busy && i >= 4 {
			between(t, fmt.Sprint("of queue ", i+2), quarter*97/100, quarter*103/100, q.share)
		}
	}
	for _, q := range all {
		q.busy = false
	}
	l.Leave("59")
	must.Be(t, "times that a queue that left was asked", 2, all[59].asked)
	ticks(l, 39, 1)
}

// A queue through which nothing goes costs no looks, and what begins then is seen at the next tick.
func TestStillQueuesAreNotLookedAt(t *testing.T) {
	idle, busy := &queue{share: 1000}, &queue{share: 1000, busy: true}
	l := group(idle, busy)
	ticks(l, 0, 160)
	must.Be(t, "looks at a queue that is idle, in 160 ticks", 1, max(idle.looks, 1))
	must.Be(t, "looks at a queue that is busy", 160, busy.looks)
	idle.changed, idle.share = true, 77
	ticks(l, 160, 101)
	must.Be(t, "share of an idle queue that another process changed two seconds ago: the parked one", 1_250_000, idle.share)
	idle.busy = true
	ticks(l, 261, 2)
	between(t, "two ticks after it began", 12_000_000, 25_000_000, idle.share)
	must.Be(t, "time until the next tick while a queue is busy", divide.Tick, l.Next())
	idle.busy, busy.busy = false, false
	for i := range 110 {
		idle.sent += 100
		ticks(l, 263+i, 1)
	}
	must.Be(t, "time until the next tick when little comes and nothing waits", 2*divide.Tick, l.Next())
	busy.busy = true
	if ticks(l, 383, 1); l.Next() != divide.Tick || busy.share < 24_000_000 {
		t.Errorf("the next tick in %v, share %v, want both at once as one begins", l.Next(), busy.share)
	}
}

func TestEndLeavesEqualParts(t *testing.T) {
	all := []*queue{{share: 24_000_000, busy: true}, {share: 1000}, {share: 1000}, {share: 1000}}
	l := group(all...)
	ticks(l, 0, 5)
	l.End()
	for i, q := range all {
		must.Be(t, fmt.Sprintf("share of queue %d when nobody divides any more: a quarter of the limit", i), 6_250_000, q.share)
	}
}

// What a queue sends whose rate the group does not decide is taken off what the others have.
func TestLoopTakesOffWhatIsOutside(t *testing.T) {
	busy, other := &queue{share: 1000, busy: true}, &queue{share: 10_000_000, busy: true}
	l := group(busy)
	l.JoinOutside("n/ingress", 200_000_000, "outside", other)
	ticks(l, 0, 30)
	between(t, "beside a queue outside that sends 10 MB/s of 25", 13_000_000, 15_500_000, busy.share)
	sent := l.Sent()
	if sent["0"].Bytes == 0 || sent["outside"] != (divide.Sent{Bytes: 5_800_000, In: 29 * divide.Tick}) || l.Sent()["outside"] != (divide.Sent{}) {
		t.Errorf("%v was sent, want of both, and nothing since", sent)
	}
	l.Leave("outside")
	must.Be(t, "it is there", false, l.Has("outside"))
}

// A queue has sent much before it joins, and is made anew with nothing sent: neither was sent since
// it was asked for.
func TestLoopSentSinceItJoined(t *testing.T) {
	q := &queue{share: 1000, busy: true, sent: 1 << 40}
	l := group(q)
	for i, want := range []units.Bytes{0, 500_000, 0, 500_000} {
		if l.Divide(time.Duration(i) * divide.Tick); i == 2 {
			q.sent = 7
			l.Divide(time.Duration(i) * divide.Tick)
		}
		must.AtMost(t, fmt.Sprintf("sent by tick %d", i), want, l.Sent()["0"].Bytes)
	}
}
