// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/enforce"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

const (
	every  = 2 * time.Second
	day    = 24 * time.Hour
	gso    = units.Bytes(65_536)
	packet = units.Bytes(69_000)
	// delay is what the allowance has for a processor that is busy elsewhere.
	delay = 50 * time.Millisecond
)

// limitOf is what a queue of this rate and burst gets.
func limitOf(rate units.BitRate, burst units.Bytes) enforce.Allowed {
	return enforce.Allowed{Rate: rate, Excess: 10, AtOnce: burst + rate.Bytes(delay) + packet}
}

// pod is a token bucket in front of a device, with time of its own. It is greedy: it
// sends all that its load offers and the bucket has.
type pod struct {
	rand *rand.Rand
	now  time.Duration
	// rate and burst are the bucket's, in bytes; tokens may be short of one packet.
	rate, burst, tokens float64
	packet              float64
	counter             uint64
	// headers is the share of the bytes that the device does not count: what a packet
	// of many segments repeats on the wire.
	headers float64
	// beside is sent beside the bucket, in bytes a second, and counted as credit.
	beside float64
	credit uint64
}

// passes lets time pass with a load in bytes a second.
func (p *pod) passes(d time.Duration, load float64) {
	const step = 20 * time.Millisecond
	for d > 0 {
		one := min(d, step)
		d -= one
		p.now += one
		p.tokens = min(p.tokens+p.rate*one.Seconds(), p.burst)
		sent := min(load*one.Seconds(), max(p.tokens+p.packet, 0))
		p.tokens -= sent
		p.counter += uint64(sent * (1 - p.headers*p.rand.Float64()))
		if p.beside > 0 {
			n := uint64(p.beside * one.Seconds())
			p.counter += n
			p.credit += n
		}
	}
}

// reading reads the counter as an agent does that may be interrupted meanwhile.
func (p *pod) reading(limit enforce.Allowed, credit bool) enforce.Reading {
	r := enforce.Reading{Limit: limit, From: p.now, Source: 1, Looked: p.now}
	wait := func() { p.passes(time.Duration(p.rand.ExpFloat64()*float64(time.Millisecond)), 1e12) }
	before := p.credit
	wait()
	r.Bytes = p.counter
	wait()
	if credit {
		r.Credit = &enforce.Credit{Before: before, After: p.credit}
	}
	r.To = p.now
	return r
}

// load is idle, some, or as much as there is, for a while.
func (p *pod) load() float64 {
	return []float64{0, 0.5 * p.rate, 1.5 * p.rate, 1e12, 1e12}[p.rand.IntN(5)]
}

// between are the times between two looks: as a rule the same, sometimes looks are
// missed, or the agent slept.
func (p *pod) between() time.Duration {
	switch n := p.rand.IntN(1000); {
	case n == 0:
		return time.Duration(p.rand.Int64N(int64(time.Hour)))
	case n < 20:
		return time.Duration(p.rand.Int64N(int64(time.Minute)))
	default:
		return every + time.Duration(p.rand.Int64N(int64(every/4)))
	}
}

// A limit that holds is never said to be exceeded, whatever happens in a day.
func TestADayWithinTheLimit(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p *pod, at int, limit *enforce.Allowed, source *uint64){
		"as it is":                     func(*pod, int, *enforce.Allowed, *uint64) {},
		"a queue that rounds its rate": func(p *pod, _ int, l *enforce.Allowed, _ *uint64) { p.rate = float64(l.Rate) / 8 * 1.0095 },
		"large packets":                func(p *pod, _ int, _ *enforce.Allowed, _ *uint64) { p.headers = 0.05 },
		"a limit that changes": func(p *pod, at int, l *enforce.Allowed, _ *uint64) {
			if at%50 == 25 {
				*l = limitOf(units.BitRate(1_000_000+p.rand.Int64N(5e9)), units.Bytes(10_000+p.rand.Int64N(1e6)))
				p.rate, p.burst = float64(l.Rate)/8, float64(l.AtOnce-l.Rate.Bytes(delay)-packet)
				p.tokens = p.burst // a queue that is made again has a full bucket
			}
		},
		"a counter that starts again": func(p *pod, at int, _ *enforce.Allowed, _ *uint64) {
			if at%100 == 50 {
				p.counter = uint64(p.rand.Int64N(1e6))
			}
		},
		"a pod that is replaced": func(p *pod, at int, _ *enforce.Allowed, source *uint64) {
			if at%100 == 50 {
				*source++
				p.counter, p.tokens = uint64(p.rand.Int64N(1e12)), p.burst
			}
		},
	} {
		for _, rate := range []units.BitRate{1e6, 1e11} {
			t.Run(fmt.Sprintf("%s, %v", name, rate), func(t *testing.T) {
				t.Parallel()
				limit := limitOf(rate, max(rate.Bytes(10*time.Millisecond), 9_100))
				p := &pod{
					rand: rand.New(rand.NewPCG(1, uint64(rate))), rate: float64(rate) / 8, packet: float64(gso),
					burst: float64(limit.AtOnce - rate.Bytes(delay) - packet),
				}
				p.tokens = p.burst
				var d enforce.Balance
				var source uint64
				for at := 0; p.now < day; at++ {
					r := p.reading(limit, false)
					r.Source = source
					if v := d.Look(r); v.Exceeded || v.Suspected || v.WantCredit {
						t.Fatalf("after %v: %+v", p.now, v)
					}
					change(p, at, &limit, &source)
					for left := p.between(); left > 0; {
						one := min(left, time.Duration(1+p.rand.Int64N(int64(every))))
						p.passes(one, p.load())
						left -= one
					}
				}
			})
		}
	}
}

// What is sent beside the limit for a good reason, however much, and what the ceiling
// drops behind the counter, is no excess.
func TestADayBesideTheLimit(t *testing.T) {
	t.Parallel()
	limit := limitOf(1e7, 12_500)
	limit.Credited = true
	p := &pod{rand: rand.New(rand.NewPCG(1, 2)), rate: 1e7 / 8, packet: float64(gso), burst: 12_500}
	var d enforce.Balance
	read := 0
	for v := (enforce.Verdict{}); p.now < day; {
		if v = d.Look(p.reading(limit, v.WantCredit)); v.Exceeded || v.Suspected {
			t.Fatalf("after %v: %+v", p.now, v)
		}
		if v.WantCredit {
			read++
		}
		if p.beside = 0; p.now > day/2 { // half a day is enough for nothing
			p.beside = []float64{0, 1e6, 1e9}[p.rand.IntN(3)]
		}
		p.passes(p.between(), p.load())
	}
	if read == 0 || read > 25_000 { // half a day is 21,600 looks
		t.Errorf("the credit was read %d times, want it for what needs it only", read)
	}
}

// What is beyond the limit is said within three looks, once, with how much it was, and
// no longer when it is over.
func TestExceeded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate   units.BitRate
		beyond float64
		within time.Duration
	}{{1e6, 2, 6 * time.Second}, {1e7, 1.2, 8 * time.Second}, {1e7, 1000, 5 * time.Second}, {1e9, 1.2, 6 * time.Second}, {1e9, 5, 5 * time.Second}} {
		limit := limitOf(tt.rate, max(tt.rate.Bytes(10*time.Millisecond), 9_100))
		p := &pod{rand: rand.New(rand.NewPCG(1, 2)), rate: float64(tt.rate) / 8, burst: float64(limit.AtOnce) / 2, packet: float64(gso)}
		var d enforce.Balance
		p.passes(every, 1e12)
		d.Look(p.reading(limit, false))
		p.rate, p.burst = p.rate*tt.beyond, 1e15
		took, v := time.Duration(0), enforce.Verdict{}
		for ; !v.Began && took < time.Minute; took += every {
			p.passes(every, 1e12)
			v = d.Look(p.reading(limit, false))
		}
		must.AtMost(t, fmt.Sprintf("until %v of %v is noticed", tt.beyond, tt.rate), tt.within, took)
		must.Within(t, fmt.Sprintf("what %v of %v is told as, by the rate", tt.beyond, tt.rate), 0.85*tt.beyond, 1.15*tt.beyond, float64(v.Carried)/float64(tt.rate))
		for range 100 { // as long as it lasts it is one
			p.passes(every, 1e12)
			if v := d.Look(p.reading(limit, false)); !v.Exceeded || v.Began {
				t.Fatalf("%v of %v: %+v, want it to last", tt.beyond, tt.rate, v)
			}
		}
		p.rate /= tt.beyond
		p.tokens, p.burst = min(p.tokens, 0), 12_500
		ended := p.now
		for d.Look(p.reading(limit, false)).Exceeded && p.now < ended+time.Hour {
			p.passes(every, 1e12)
		}
		must.Within(t, fmt.Sprintf("%v of %v: how long until it is over", tt.beyond, tt.rate), enforce.Quiet-every, enforce.Quiet+3*every, p.now-ended)
	}
}

// How long a limit is used up is known to a look or two, whatever the load was in between,
// and what the policy does not charge does not use it.
func TestHeld(t *testing.T) {
	t.Parallel()
	const rate, looks = 1e7 / 8, 300
	for name, tt := range map[string]struct {
		load, beside, headers float64
		uncharged             bool
		least, most           time.Duration
	}{
		"idle":                       {},
		"80 % of the limit":          {load: 0.8 * rate},
		"as much as there is":        {load: 1e12, least: (looks - 2) * every, most: (looks + 2) * every},
		"the same in large packets":  {load: 1e12, headers: 0.08, least: (looks - 2) * every, most: (looks + 2) * every},
		"free traffic alone":         {beside: 1e8, uncharged: true},
		"free traffic and the limit": {load: 1e12, beside: 1e7, uncharged: true, least: (looks - 4) * every, most: (looks + 2) * every},
		"the limit without credit":   {load: 1e12, uncharged: true, least: (looks - 4) * every, most: (looks + 2) * every},
	} {
		limit := limitOf(1e7, 12_500)
		limit.Credited, limit.Uncharged = tt.uncharged, tt.uncharged
		p := &pod{rand: rand.New(rand.NewPCG(1, 2)), rate: rate, burst: 12_500, packet: float64(gso), beside: tt.beside, headers: tt.headers}
		var d enforce.Balance
		var held time.Duration
		v := d.Look(p.reading(limit, false))
		for i := range 2 * looks { // the pod is idle between two turns at its load
			load := tt.load
			if p.beside = tt.beside; i%100 >= 50 {
				load, p.beside = 0, 0
			}
			p.passes(every, load)
			v = d.Look(p.reading(limit, v.WantCredit))
			held += v.Held
		}
		if held < tt.least || held > tt.most+tt.most/100 { // a look takes some time, too
			t.Errorf("%s: held for %v, want %v to %v", name, held, tt.least, tt.most)
		}
	}
}

// Since when a direction is at its limit outlasts short pauses, and ends with a long one.
func TestReached(t *testing.T) {
	t.Parallel()
	const rate = 1e7 / 8
	limit := limitOf(1e7, 12_500)
	p := &pod{rand: rand.New(rand.NewPCG(1, 2)), rate: rate, burst: 12_500, packet: float64(gso)}
	var d enforce.Balance
	v := d.Look(p.reading(limit, false))
	began := p.now
	for _, turn := range []struct {
		what  string
		looks int
		load  float64
		now   bool
		share float64
		begin bool
	}{
		{what: "idle since it is known", looks: 1},
		{what: "at its limit", looks: 2, load: rate, now: true, share: 0.66, begin: true},
		{what: "for minutes", looks: 150, load: rate, now: true, share: 1},
		{what: "a pause", looks: 4, load: rate / 2, now: true, share: 0.87},
		{what: "after the pause", looks: 26, load: rate, now: true, share: 0.87},
		{what: "a long pause", looks: 15, share: 0.5},
		{what: "at its limit again", looks: 15, load: rate, now: true, share: 0.5, begin: true},
		{what: "idle", looks: 30},
	} {
		if turn.begin {
			began = p.now
		}
		for range turn.looks {
			p.passes(every, turn.load)
			v = d.Look(p.reading(limit, false))
		}
		got := v.Reached
		late := got.Since - began
		if got.Now != turn.now || got.LastMinute < turn.share-0.07 || got.LastMinute > turn.share+0.07 || got.Now && (late < -2*every || late > 2*every) {
			t.Errorf("%s: %+v, want %v since %v and %v of the last minute", turn.what, got, turn.now, began, turn.share)
		}
	}
	p.passes(every, rate)
	limit.Rate *= 2
	must.Be(t, "what is known of another limit", enforce.Reached{}, d.Look(p.reading(limit, false)).Reached)
}

// A burst between two looks is enough: the promise is about any window.
func TestExceededByABurst(t *testing.T) {
	t.Parallel()
	limit := limitOf(1e7, 12_500)
	p := &pod{rand: rand.New(rand.NewPCG(1, 2)), rate: 1e7 / 8, burst: 12_500, packet: float64(gso)}
	var d enforce.Balance
	d.Look(p.reading(limit, false))
	p.passes(time.Hour, 0) // what a pod did not use it may not use later
	d.Look(p.reading(limit, false))
	p.passes(every, 0)
	p.counter += 10_000_000 // in 50 ms
	p.passes(every, 0)
	d.Look(p.reading(limit, false))
	p.passes(every, 0)
	must.Be(t, "exceeded", true, d.Look(p.reading(limit, false)).Began)
}

// Before it was looked whether the limit is still the same nothing is said, unless
// nobody looks.
func TestSuspicionWaits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		looked func(now time.Duration) time.Duration
		change bool
		looks  int
	}{
		"looked at once":        {looked: func(now time.Duration) time.Duration { return now }, looks: 2},
		"nobody looks":          {looked: func(time.Duration) time.Duration { return 0 }, looks: 4},
		"another limit by then": {looked: func(now time.Duration) time.Duration { return now }, change: true},
	} {
		limit := limitOf(1e7, 12_500)
		p := &pod{rand: rand.New(rand.NewPCG(1, 2)), rate: 1e7 / 8, burst: 12_500, packet: float64(gso)}
		var d enforce.Balance
		d.Look(p.reading(limit, false))
		p.rate *= 10
		got := 0
		for i := 1; i <= 10 && got == 0; i++ {
			p.passes(every, 1e12)
			r := p.reading(limit, false)
			r.Looked = tt.looked(r.From)
			if v := d.Look(r); v.Began {
				got = i
			} else if v.Suspected && tt.change {
				limit = limitOf(1e8, 125_000)
			}
		}
		must.Be(t, name+": said at look", tt.looks, got)
	}
}
