// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package share_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/share"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

const (
	limit  = units.BitRate(200_000_000)
	tick   = share.Tick
	step   = time.Millisecond
	bucket = 5 * time.Millisecond
	// long is what no queue lets out by the next tick.
	long     = units.Bytes(1 << 40)
	perTick  = int(tick / step)
	inSecond = int(time.Second / step)
)

// load is what a pod offers in one step, in bytes.
type load func(at time.Duration) float64

func bulk(from, to time.Duration) load {
	return func(at time.Duration) float64 {
		if at < from || at >= to {
			return 0
		}
		return 1e6
	}
}

func steady(rate units.BitRate) load {
	return func(time.Duration) float64 { return float64(rate.ByteRate().Bytes(step)) }
}

// bursts offers the whole limit for some time, and nothing for a longer one.
func bursts(on, off time.Duration, seed uint64) load {
	random := rand.New(rand.NewPCG(seed, 0))
	next, sending := time.Duration(0), false
	return func(at time.Duration) float64 {
		if at >= next {
			sending = !sending
			mean := off
			if sending {
				mean = on
			}
			next = at + time.Duration(float64(mean)*(0.5+random.Float64()))
		}
		if !sending {
			return 0
		}
		return float64(limit.ByteRate().Bytes(step))
	}
}

// pulses offers the whole limit for the same time of each turn, and begins anywhere in one.
func pulses(on, turn time.Duration, seed uint64) load {
	begins := time.Duration(rand.New(rand.NewPCG(seed, 1)).Int64N(int64(turn)))
	return func(at time.Duration) float64 {
		if (at+begins)%turn >= on {
			return 0
		}
		return float64(limit.ByteRate().Bytes(step))
	}
}

// queue is what the kernel does with a member: a bucket whose credit is in time, as in a
// class of HTB, and packets as a fluid, at most so many.
type queue struct {
	*share.Member
	offered load
	// out says that the queue is as deep as one out of a pod: by its share, at most half of the others' depth.
	out     bool
	waiting float64
	credit  time.Duration
	sent    float64
	// perStep are the bytes that left in each step.
	perStep []float64
}

func (q *queue) step(at time.Duration) {
	q.credit = min(q.credit+step, bucket)
	rate, deep := float64(q.Share), 250_000.0
	if q.out {
		deep = min(max(0.075*rate, 30_000), 125_000)
	}
	q.waiting = max(q.waiting, min(q.waiting+q.offered(at), deep))
	out := max(min(q.waiting, q.credit.Seconds()*rate), 0)
	q.waiting -= out
	q.credit -= time.Duration(out / rate * float64(time.Second))
	q.sent += out
	q.perStep = append(q.perStep, out)
}

// run lets queues with these loads divide a limit for so long, with perTick steps from one tick to the next: on
// a busy node the agent comes late. They are queues out of pods if out is true.
func run(perTick int, g *share.Group, last time.Duration, out bool, loads ...load) []*queue {
	queues := make([]*queue, len(loads))
	for i := range loads {
		queues[i] = &queue{Member: &share.Member{}, offered: loads[i], out: out}
		g.Join(queues[i].Member)
	}
	for n := range int(last / step) {
		if n%perTick == 0 {
			for _, q := range queues {
				q.Saw(units.Bytes(q.sent), units.Bytes(q.waiting))
			}
			g.Divide(time.Hour + time.Duration(n)*step)
		}
		for _, q := range queues {
			q.step(time.Duration(n) * step)
		}
	}
	return queues
}

// total is what all queues sent from one step to another, as a share of the limit.
func total(queues []*queue, from, to int) float64 {
	sum := 0.0
	for _, q := range queues {
		for _, b := range q.perStep[from:to] {
			sum += b
		}
	}
	return sum / float64(limit.ByteRate().Bytes(time.Duration(to-from)*step))
}

// worst is the largest total of any window.
func worst(queues []*queue, window int) float64 {
	most, steps := 0.0, len(queues[0].perStep)
	sums := make([]float64, steps+1)
	for i := range steps {
		sums[i+1] = sums[i]
		for _, q := range queues {
			sums[i+1] += q.perStep[i]
		}
		if i+1 >= window {
			most = max(most, sums[i+1]-sums[i+1-window])
		}
	}
	return most / float64(limit.ByteRate().Bytes(time.Duration(window)*step))
}

func TestSumIsTheLimit(t *testing.T) {
	t.Parallel()
	all := func(f func(i int) load) func() []load {
		return func() (loads []load) {
			for i := range 8 {
				loads = append(loads, f(i))
			}
			return loads
		}
	}
	bulkAnd := func(others func() []load) func() []load {
		return func() []load { return append([]load{bulk(0, time.Hour)}, others()...) }
	}
	const last = 10 * time.Second
	for name, c := range map[string]struct {
		loads func() []load
		// used is what the group uses at least in the last five seconds.
		used float64
	}{
		"one pod":   {bulkAnd(all(func(int) load { return steady(0) })), 0.99},
		"all pods":  {all(func(int) load { return bulk(0, last) }), 0.99},
		"in turns":  {all(func(i int) load { return bulk(time.Duration(i)*time.Second, time.Duration(i+3)*time.Second) }), 0.97},
		"all begin": {all(func(int) load { return bulk(5*time.Second, last) }), 0.97},
		"15/45 ms":  {all(func(i int) load { return bursts(15*time.Millisecond, 45*time.Millisecond, uint64(i)) }), 0.5},
		"40/200 ms": {all(func(i int) load { return bursts(40*time.Millisecond, 200*time.Millisecond, uint64(i)) }), 0.5},
		"3/30 ms":   {all(func(i int) load { return bursts(3*time.Millisecond, 30*time.Millisecond, uint64(i)) }), 0.4},
		"bulk beside bursts": {bulkAnd(all(func(i int) load {
			return bursts(15*time.Millisecond, 45*time.Millisecond, uint64(i))
		})), 0.97},
		"bulk beside one pod with bursts": {bulkAnd(func() []load {
			return []load{bursts(40*time.Millisecond, 200*time.Millisecond, 1), steady(0), steady(0), steady(0)}
		}), 0.97},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, turn := range []int{1, 2, 3, 4, 5} {
				queues := run(turn*perTick, share.New(limit), last, false, c.loads()...)
				second, tenth := worst(queues, inSecond), worst(queues, inSecond/10)
				used := total(queues, 5*inSecond, 10*inSecond)
				t.Logf("each %d. tick: worst second %.4f, worst tenth %.4f, used %.4f", turn, second, tenth, used)
				allowed := 1.05
				if turn > 1 { // the agent came late
					allowed = 1.06
				}
				if second > 1.01 || tenth > allowed {
					t.Errorf("%.4f of the limit in a second and %.4f in a tenth, want at most 1.01 and %.2f", second, tenth, allowed)
				}
				if turn == 1 && used < c.used {
					t.Errorf("%.4f of the limit used, want at least %v", used, c.used)
				}
			}
		})
	}
}

// Out of a pod, what a small share does not let out is dropped. Bursts that are over before a share can follow them lose
// little all the same, and bulk has what they leave.
func TestBriefBursts(t *testing.T) {
	t.Parallel()
	brief := func(pods int, seed uint64) (loads []load) {
		for i := range pods {
			loads = append(loads, pulses(15*time.Millisecond, 60*time.Millisecond, seed+uint64(i)))
		}
		return loads
	}
	for name, c := range map[string]struct {
		pods   int
		beside []load
		// used is what the group uses at least, first what the first pod does.
		used, first float64
	}{
		"eight pods":             {pods: 8, used: 0.97, first: 0.115},
		"sixteen pods":           {pods: 16, used: 0.97, first: 0.055},
		"eight pods beside bulk": {pods: 8, beside: []load{bulk(0, time.Hour)}, used: 0.97, first: 0.1},
		"one pod beside bulk":    {pods: 1, beside: []load{bulk(0, time.Hour), steady(0), steady(0), steady(0)}, used: 0.96, first: 0.12},
	} {
		for seed := range uint64(5) {
			queues := run(perTick, share.New(limit), 6*time.Second, true, append(brief(c.pods, 100*seed), c.beside...)...)
			second, tenth := worst(queues, inSecond), worst(queues, inSecond/10)
			used, first := total(queues, 2*inSecond, 6*inSecond), total(queues[:1], 2*inSecond, 6*inSecond)
			t.Logf("%s: worst second %.4f, worst tenth %.4f, used %.4f, by the first %.4f", name, second, tenth, used, first)
			if second > 1.01 || tenth > 1.05 || used < c.used || first < c.first {
				t.Errorf("%s: want at most 1.01 and 1.05, at least %v and %v", name, c.used, c.first)
			}
		}
	}
}

// Pods with brief bursts keep a share for the next burst. Soon after the last burst others have it.
func TestBriefBurstsEnd(t *testing.T) {
	t.Parallel()
	loads := []load{bulk(0, time.Hour)}
	for i := range 3 {
		sends := pulses(15*time.Millisecond, 60*time.Millisecond, uint64(i))
		loads = append(loads, func(at time.Duration) float64 {
			if at >= 3*time.Second {
				return 0
			}
			return sends(at)
		})
	}
	queues := run(perTick, share.New(limit), 4*time.Second, true, loads...)
	must.AtLeast(t, "used of the limit from 100 ms after three of four stopped", 0.97, total(queues, 3*inSecond+100, 3*inSecond+200))
	must.AtLeast(t, "used of the limit by the one that is left", 0.97, total(queues[:1], 3*inSecond+200, 4*inSecond))
}

func TestOthersTakeWhatStops(t *testing.T) {
	t.Parallel()
	for turn, after := range map[int]int{1: 100, 2: 100, 3: 100, 4: 100, 5: 160} {
		queues := run(turn*perTick, share.New(limit), 3*time.Second, false, bulk(0, 3*time.Second), bulk(0, time.Second), bulk(0, time.Second), bulk(0, time.Second))
		drained := inSecond + 40 // the others send what waits
		for _, ms := range []int{0, 20, 40, 60, 80, 100, 200} {
			t.Logf("each %d. tick: %.4f of the limit used in the 20 ms from %d ms after three of four stopped", turn, total(queues, drained+ms, drained+ms+20), ms)
		}
		must.AtLeast(t, fmt.Sprintf("each %d. tick: used of the limit from %d ms after three of four stopped", turn, after), 0.97, total(queues, drained+after, drained+200))
	}
}

func TestEqualAmongWhoWaits(t *testing.T) {
	t.Parallel()
	queues := run(perTick, share.New(limit), 4*time.Second, false, bulk(0, time.Hour), bulk(0, time.Hour), bulk(0, time.Hour), steady(10_000_000))
	want := (float64(limit) - 10e6) / 8 / 3
	for i, q := range queues[:3] {
		sum := 0.0
		for _, b := range q.perStep[3*inSecond:] {
			sum += b
		}
		must.Within(t, fmt.Sprintf("bytes that pod %d sent in a second", i), 0.95*want, 1.05*want, sum)
	}
	last := queues[3]
	must.AtMost(t, "bytes that wait in the queue of a pod that sends less than its part", 1000, last.waiting)
}

func TestOwnLimitAndOutsiders(t *testing.T) {
	t.Parallel()
	g := share.New(80_000_000)
	small := &share.Member{Most: 1_000_000}
	outside := &share.Member{Outside: true, Share: 12345}
	large := &share.Member{}
	for _, m := range []*share.Member{small, outside, large} {
		g.Join(m)
	}
	sent := []units.Bytes{0, 0, 0}
	for n := range 6 {
		for i, m := range g.Members() {
			m.Saw(sent[i], long)
		}
		g.Divide(time.Duration(n) * tick)
		sent[0] += small.Share.Bytes(tick)
		sent[1] += units.ByteRate(7_000_000).Bytes(tick)
		sent[2] += large.Share.Bytes(tick)
	}
	if small.Share != 1_000_000 || outside.Share != 12345 {
		t.Errorf("shares %v of the member with a limit of 1 MB/s and %v of the member outside", small.Share, outside.Share)
	}
	must.Within(t, "the share after 0.1 s, what the others leave of 10 MB/s or less", 1_000_000, 2_200_000, large.Share)
}

func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	g := share.New(limit)
	adopted, fresh := &share.Member{Share: 7_000_000}, &share.Member{Most: 100_000}
	g.Join(adopted)
	g.Join(fresh)
	if adopted.Share != 7_000_000 || fresh.Share != 100_000 {
		t.Errorf("shares %v and %v after joining, want what was there and the own limit below the parked share", adopted.Share, fresh.Share)
	}
	must.Be(t, "equal share of two", 12_500_000, g.Equal())
	g.Leave(adopted)
	if got := g.Parked(); got != 2_500_000 || len(g.Members()) != 1 {
		t.Errorf("parked share %v of %d members, want a tenth for the one that is left", got, len(g.Members()))
	}
	if g.SetLimit(units.MinRate - 1); g.Limit() == 0 || g.Equal() == 0 || g.Parked() == 0 {
		t.Error("a limit below the lowest rate divides nothing")
	}
}

// A queue that was there before, and leaves for a moment, keeps what it sends by: nobody saw yet
// what it sends.
func TestJoinedAgainKeepsItsShare(t *testing.T) {
	t.Parallel()
	g, tick := share.New(limit), 20*time.Millisecond
	idle, m := &share.Member{}, &share.Member{}
	g.Join(idle)
	g.Join(m)
	sends := limit.ByteRate() / 2
	for i := range 100 {
		if i == 50 {
			g.Leave(m)
			m = &share.Member{Share: m.Share}
			g.Join(m)
		}
		idle.Saw(0, 0)
		m.Saw(sends.Bytes(time.Duration(i)*tick), 0)
		if g.Divide(time.Duration(i) * tick); i > 10 && m.Share < sends {
			t.Errorf("tick %d: share %v of a queue that sends %v", i, m.Share, sends)
		}
	}
}

// A queue that was made again counts from 0, and a restarted agent finds counts that it never
// saw: neither was sent in one tick.
func TestCountsBeginAnew(t *testing.T) {
	t.Parallel()
	g := share.New(limit)
	m := &share.Member{}
	g.Join(m)
	m.Saw(1<<50, 0)
	g.Divide(0)
	m.Saw(1<<50, 0)
	g.Divide(tick)
	m.Saw(10, 0)
	g.Divide(2 * tick)
	m.Saw(10, long)
	g.Divide(3 * tick)
	must.AtLeast(t, "share of the only one who sends, of whom nothing was sent", g.Limit(), m.Share)
}

// What a dead allocator lets happen is paid for, and nobody is stopped for that.
func TestDebtHasABound(t *testing.T) {
	t.Parallel()
	g := share.New(limit)
	m := &share.Member{}
	g.Join(m)
	m.Saw(0, long)
	g.Divide(0)
	sent := units.Bytes(1 << 40)
	m.Saw(sent, long)
	g.Divide(time.Second)
	must.Within(t, "the share after a debt, about half of the limit", g.Limit()/2, g.Limit()*3/4, m.Share)
	for n := range 50 {
		sent += m.Share.Bytes(tick)
		m.Saw(sent, long)
		g.Divide(time.Second + time.Duration(n+1)*tick)
	}
	must.AtLeast(t, "share a second after a debt", g.Limit()*9/10, m.Share)
}

// A pod that pauses keeps its share while no other pod wants it. A pod that begins gets half of it at the next tick.
func TestPauseCostsNothing(t *testing.T) {
	t.Parallel()
	pauses := bursts(60*time.Millisecond, 60*time.Millisecond, 1)
	g := share.New(limit)
	alone := run(perTick, g, 5*time.Second, false, pauses, steady(0))
	must.AtLeast(t, "share of the only one who sends, now and then", g.Limit()*9/10, alone[0].Share)
	queues := run(perTick, share.New(limit), 5*time.Second, false, bursts(60*time.Millisecond, 60*time.Millisecond, 1), bulk(4*time.Second, time.Hour))
	must.AtMost(t, "of the limit in a second as another one begins", 1.01, worst(queues, inSecond))
	must.AtLeast(t, "of the limit for who began", 0.45, total(queues[1:], 4*inSecond+40, 5*inSecond))
}

// Each change takes the kernel some microseconds: a burst beside bulk takes few, with packets of which a small share lets out
// one in several ticks. The limit is used all the same.
func TestBurstsTakeFewChanges(t *testing.T) {
	t.Parallel()
	const small, turn, frame = units.BitRate(10_000_000), 240, 1442.0
	changes, used := 0, 0.0
	const phases, last = 5, 100 * turn
	for phase := range phases {
		g, queues := share.New(small), make([]*queue, 5)
		for i := range queues {
			queues[i] = &queue{Member: &share.Member{Most: small.ByteRate()}}
			g.Join(queues[i].Member)
		}
		for n := range last {
			if n%perTick == 0 {
				for _, q := range queues {
					q.Saw(units.Bytes(q.sent), units.Bytes(q.waiting))
				}
				changes += len(g.Divide(time.Hour + time.Duration(n)*step))
			}
			queues[0].waiting = 50_000
			if (n+4*phase)%turn < 40 {
				queues[1].waiting += float64(small.ByteRate().Bytes(step))
			}
			for _, q := range queues {
				for q.credit = min(q.credit+step, bucket); q.waiting >= frame && q.credit >= 0; q.sent += frame {
					q.waiting -= frame
					q.credit -= time.Duration(frame / float64(q.Share) * float64(time.Second))
				}
			}
		}
		used += (queues[0].sent + queues[1].sent) / float64(small.ByteRate().Bytes(last*step)) / phases
	}
	each := float64(changes) / (phases * last / turn)
	if t.Logf("%.2f changes for a burst, %.4f of the limit used", each, used); each > 5.5 || used < 0.96 {
		t.Errorf("%.2f changes for a burst, %.4f of the limit used, want at most 5.5, and 0.96", each, used)
	}
}

// A single packet leaves an idle queue whatever its share is. If another one has to wait, the share rises.
func TestSinglePacketRaisesNoShare(t *testing.T) {
	t.Parallel()
	g, m := share.New(10_000_000), &share.Member{}
	for _, m := range []*share.Member{m, {}} {
		g.Join(m)
	}
	m.Saw(0, 0)
	g.Divide(0)
	for n := 1; n <= 3; n++ {
		m.Saw(units.Bytes(1514*n), 0)
		must.Len(t, fmt.Sprintf("tick %d: shares that change because of one packet", n), 0, g.Divide(time.Duration(n)*tick))
	}
	m.Saw(3*1514, 1514)
	if g.Divide(4 * tick); m.Share < 100_000 {
		t.Errorf("share %v although a packet waits, want what lets it out by the next tick", m.Share)
	}
}

// A share that hardly changes is not worth a call to the kernel.
func TestSmallDifferencesAreNoChange(t *testing.T) {
	t.Parallel()
	queues := []*share.Member{{}, {}, {}}
	g := share.New(limit)
	for _, m := range queues {
		g.Join(m)
	}
	changes, sent := 0, make([]units.Bytes, len(queues))
	for n := range 500 {
		for i, m := range queues {
			m.Saw(sent[i], long)
			sent[i] += m.Share.Bytes(tick) * units.Bytes(995+n%10) / 1000
		}
		changes += len(g.Divide(time.Duration(n) * tick))
	}
	must.AtMost(t, "changes in 10 s of three queues that never stop", 50, changes)
}

// What is missing to the own limit is less than a change is worth, and would be for ever. A little of it can wait.
func TestOwnLimitIsReached(t *testing.T) {
	t.Parallel()
	nearly := share.New(limit)
	near := &share.Member{Share: 24_900_000, Most: limit.ByteRate()}
	nearly.Join(near)
	for n := range 28 {
		near.Saw(near.Share.Bytes(time.Duration(n)*tick), long)
		if changed := nearly.Divide(time.Duration(n) * tick); len(changed) != 0 && n < 20 {
			t.Errorf("share %v in tick %d, want what misses little unchanged for half a second", near.Share, n)
		}
	}
	must.Be(t, "share in the end, which is the limit", limit.ByteRate(), near.Share)
	g := share.New(limit)
	m := &share.Member{Share: 24_500_000, Most: limit.ByteRate()}
	g.Join(m)
	m.Saw(0, long)
	g.Divide(0)
	m.Saw(m.Share.Bytes(tick), long)
	if changed := g.Divide(tick); len(changed) != 1 || m.Share != limit.ByteRate() {
		t.Errorf("share %v of the only one who sends, want the limit, %v", m.Share, limit.ByteRate())
	}
	m.Saw(m.Share.Bytes(2*tick), long)
	must.Len(t, "shares that changed without a difference", 0, g.Divide(2*tick))
}

func FuzzDivide(f *testing.F) {
	f.Add(uint64(200_000_000), []byte{0, 1, 2, 3, 4, 5, 250, 251})
	f.Add(uint64(1), []byte{255, 255, 0, 0})
	f.Add(uint64(units.MaxRate), []byte("any load at all"))
	f.Fuzz(func(t *testing.T, rate uint64, looks []byte) {
		g := share.New(units.BitRate(min(rate, uint64(units.MaxRate))))
		for i := range min(len(looks), 20) {
			m := &share.Member{Outside: looks[i] == 7}
			if looks[i]%5 == 1 {
				m.Most = 1 + units.ByteRate(looks[i])*1000
			}
			g.Join(m)
		}
		sent := make([]units.Bytes, len(g.Members()))
		now := time.Duration(0)
		for at := 0; at < len(looks); {
			for i, m := range g.Members() {
				look := looks[at%len(looks)]
				at++
				// From nothing to somewhat more than the share, and now and then a lot.
				sent[i] += m.Share.Bytes(tick) * units.Bytes(look%64) / 50
				if look == 255 {
					sent[i] = units.Bytes(look) << (at % 60)
				}
				m.Saw(sent[i], units.Bytes(look&1)*units.Bytes(look)*1000)
			}
			now += time.Duration(looks[at%len(looks)]) * time.Millisecond / 5
			g.Divide(now)
			check(t, g)
		}
	})
}

// check holds what is true after every tick: whoever waits has the same, and all who wait
// have together no more than the limit and what the ledger adds.
func check(t *testing.T, g *share.Group) {
	t.Helper()
	most := float64(g.Limit()) * (1 + share.Credit.Seconds()*10)
	var waiting float64
	for i, m := range g.Members() {
		if m.Most != 0 && m.Share > m.Most {
			t.Fatalf("member %d: share %v beyond its own limit %v", i, m.Share, m.Most)
		}
		if !m.Outside && m.Share < min(g.Parked(), max(m.Most, 1))*9/10 && m.Most == 0 {
			t.Fatalf("member %d: share %v below the parked one, %v", i, m.Share, g.Parked())
		}
		if m.Waiting() && !m.Outside && m.Most == 0 {
			waiting += float64(m.Share)
		}
	}
	// A share may be too large by the dead band, and the parked ones come on top.
	if waiting > most*1.04+float64(g.Parked())*float64(len(g.Members())+1) {
		t.Fatalf("who waits has %.0f bytes per second of a limit of %v", waiting, g.Limit())
	}
}

// What nobody divides yet is divided as it will be: by what each member sends, without those
// outside, and never below what is parked.
func TestWould(t *testing.T) {
	t.Parallel()
	const mbit = 1_000_000 / 8
	sends := []units.ByteRate{100 * mbit, 90 * mbit, 8 * mbit, 0, 20 * mbit, 0}
	members := []*share.Member{{}, {}, {}, {}, {Outside: true}, {Most: mbit}}
	members[5].Saw(0, long) // packets wait in its queue already
	share.Would(limit, members, func(i int) units.ByteRate { return sends[i] })
	// 180 without what is outside; 10 for who sends 8, 1 for who waits and may have no more.
	for i, want := range []units.ByteRate{169 * mbit / 2, 169 * mbit / 2, 10 * mbit, limit.ByteRate() / 60, 0, mbit} {
		must.Be(t, fmt.Sprintf("share of member %d", i), want, members[i].Share)
	}
}
