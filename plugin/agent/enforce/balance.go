// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce

import (
	"math/bits"
	"time"

	"github.com/podweir/podweir/plugin/units"
)

// Allowed is what a direction may carry.
type Allowed struct {
	// Rate is the cap in bits per second, Excess what is allowed beyond it: what a
	// queue rounds, and what the ceiling leaves room for.
	Rate   units.BitRate
	Excess units.PerMille
	// AtOnce is what may pass on top of the rate in any window: the burst, a
	// scheduler's delay and one packet.
	AtOnce units.Bytes
	// InFlight is what may be on its way from the counter to where it is counted as
	// credit.
	InFlight units.Bytes
	// Credited says that some of what the counter counts may be beyond the limit for
	// a good reason. That is read only if it matters; see [Verdict.WantCredit].
	Credited bool
	// Uncharged says that part of that credit is traffic which the policy does not
	// charge: only the credit tells how much of the limit is used.
	Uncharged bool
}

func (a *Allowed) bytesPerSecond() float64 {
	return float64(a.Rate) / 8 * float64(units.Whole+a.Excess) / float64(units.Whole)
}

// Reading is one look at the counter of a direction. Times are those of one clock that
// goes on while the machine does, from any start.
type Reading struct {
	Limit Allowed
	// From and To are before and after the counter was read.
	From, To time.Duration
	// Bytes is the counter.
	Bytes uint64
	// Source tells counters apart: another one starts from zero.
	Source uint64
	// Credit is what the counter counts and the limit does not, before the counter was
	// read and after; nil if it was not read.
	Credit *Credit
	// Looked is when it was last looked whether the limit is still this one and what
	// enforces it is in place.
	Looked time.Duration
}

// Credit is a counter of bytes that was read twice.
type Credit struct{ Before, After uint64 }

// Verdict is what a reading says.
type Verdict struct {
	// Exceeded says that the limit did not hold, now or within [Quiet].
	Exceeded bool
	// Began is true at the one reading with which that begins.
	Began bool
	// Since is the reading that it was seen at first.
	Since time.Duration
	// Carried is the rate since shortly before, without what does not count.
	Carried units.BitRate
	// Suspected says that more was carried than the limit lets through. Someone
	// should look whether the limit is still the same: the next readings decide.
	Suspected bool
	// WantCredit says that the next readings need [Reading.Credit].
	WantCredit bool
	// Held is the time since the previous reading if the direction carried at least
	// [HeldShare] of its rate in it, else 0.
	Held time.Duration
	// Reached is what such times add up to.
	Reached Reached
}

// HeldShare is the part of its rate from which a direction counts as held at its limit.
// It is below 1 because a device counts a packet of many segments with one header: 4 %
// less than the queue for full segments.
const HeldShare = 0.9

const (
	// Quiet is how long a limit has to hold until it is no longer said to be exceeded:
	// a reader of the state every minute sees it.
	Quiet = time.Minute
	// creditTime is how long the credit is read after it was needed last.
	creditTime = 10 * time.Minute
	// maxUnsettled is how many readings wait for [Reading.Looked].
	maxUnsettled = 3
)

// Balance compares what the device of one direction carried with what the limit lets
// through: in any window t at most rate * t, and so much at once. It reads nothing by
// itself: readings come in, verdicts go out, and a look takes constant time and memory
// whatever the window. The zero value knows nothing yet.
//
// A reading is not exact: the counter was read somewhere between two times, and what
// does not count (see [Reading.Credit]) was read before and after it. Each is taken in
// favour of the limit, so that a limit that holds is never said to be exceeded.
type Balance struct {
	last  *Reading
	level float64 // bytes beyond the rate in the worst window that ends with last

	suspect *Reading // the reading before the one that was first beyond the limit
	since   time.Duration
	waits   int

	reached reached

	exceeded    bool
	over        time.Duration // when it was last beyond the limit
	creditUntil time.Duration
	carried     units.BitRate
}

// Look takes a reading and says what it means.
func (b *Balance) Look(r Reading) Verdict {
	began := false
	var held time.Duration
	switch {
	case b.last == nil || b.last.Source != r.Source || b.last.Limit != r.Limit:
		*b = Balance{}
	case r.Bytes < b.last.Bytes || !sameCredit(b.last.Credit, r.Credit):
		// A counter started again, or the credit comes in or goes: nothing can be said
		// about what was between the two.
		b.level, b.suspect = 0, nil
	default:
		held = b.held(&r)
		if b.beyond(&r) {
			began = b.judge(&r)
		} else {
			b.suspect = nil
		}
	}
	if b.last != nil {
		b.reached.add(b.last.From, r.From, held > 0)
	}
	if b.exceeded && r.To-b.over > Quiet {
		b.exceeded = false
	}
	b.last = &r
	return Verdict{
		Exceeded: b.exceeded, Began: began, Since: b.since, Carried: b.carried,
		Suspected: b.suspect != nil, WantCredit: r.Limit.Credited && r.To < b.creditUntil,
		Held: held, Reached: b.reached.verdict(),
	}
}

// held returns the time since the last reading if the limit was used up in it. Where not
// everything is charged, it asks for the credit and returns 0 until it has it.
func (b *Balance) held(r *Reading) time.Duration {
	since := r.From - b.last.From
	enough := HeldShare * float64(r.Limit.Rate) / 8 * since.Seconds()
	if r.Limit.Uncharged && float64(r.Bytes-b.last.Bytes) >= enough {
		b.creditUntil = r.To + creditTime
		if r.Credit == nil {
			return 0
		}
	}
	if since <= 0 || carried(b.last, r) < enough {
		return 0
	}
	return since
}

// sameCredit says that both are read, and go on, or none is.
func sameCredit(a, b *Credit) bool {
	if a == nil || b == nil {
		return a == b
	}
	return b.Before >= a.Before && b.After >= b.Before
}

// beyond adds what was carried since the last reading, and says whether the worst
// window that ends here holds more than the limit. That is the largest, over all
// readings j before this one, of bytes since j less rate * time since j: a level that
// rises with bytes, falls with time, and is never below 0.
func (b *Balance) beyond(r *Reading) bool {
	rate := r.Limit.bytesPerSecond()
	b.level += carried(b.last, r) - rate*(r.From-b.last.From).Seconds()
	// Since a reading j counts from its beginning, and this one counts to its end.
	slack := rate * (r.To - r.From).Seconds()
	if r.Credit != nil {
		slack += float64(r.Credit.After-r.Credit.Before) + float64(r.Limit.InFlight)
	}
	if r.Credit != nil && float64(r.Bytes-b.last.Bytes) > rate*(r.From-b.last.From).Seconds() {
		b.creditUntil = r.To + creditTime // it is still needed
	}
	over := b.level-slack > float64(r.Limit.AtOnce)
	b.level = max(b.level, 0)
	return over
}

// carried is the number of bytes that count between two readings.
func carried(a, b *Reading) float64 {
	n := float64(b.Bytes - a.Bytes)
	if a.Credit != nil && b.Credit != nil {
		n -= float64(b.Credit.Before - a.Credit.Before)
	}
	return n
}

// judge answers a reading beyond the limit. What is suspected is said only when it was
// looked since then whether the limit is still the same, or that takes too long.
func (b *Balance) judge(r *Reading) (began bool) {
	if r.Limit.Credited && r.Credit == nil {
		b.creditUntil = r.To + creditTime
		return false
	}
	if b.exceeded {
		b.over, b.level = r.To, 0
		b.carried = rateOf(b.last, r)
		return false
	}
	if b.suspect == nil {
		b.suspect, b.since, b.waits = b.last, r.To, 0
		return false
	}
	b.waits++
	if r.Looked <= b.since && b.waits < maxUnsettled {
		return false
	}
	b.carried = rateOf(b.suspect, r)
	// From here on it is exceeded by what comes, not by what was.
	b.exceeded, b.over, b.level, b.suspect = true, r.To, 0, nil
	return true
}

func rateOf(a, b *Reading) units.BitRate {
	seconds := (b.To - a.From).Seconds()
	if seconds <= 0 {
		return 0
	}
	return units.BitRate(max(carried(a, b), 0) * 8 / seconds)
}

// Reached is since when, and for how much of the last minute, a direction has been held at
// its limit.
type Reached struct {
	// Now says that it is held, with pauses of up to [HeldPause]. Since is then the
	// reading with which that began.
	Now   bool
	Since time.Duration
	// LastMinute is the part of the last minute in which it was held, 1 for all of it. It
	// is exact to one thirtieth. Known says that it was watched for some of that minute.
	LastMinute float64
	Known      bool
}

// HeldPause is the longest time below the limit that does not end [Reached.Now]: a sender
// that lost packets needs some of it to come back.
const HeldPause = 10 * time.Second

// The last minute in slots of two seconds.
const (
	slotTime  = 2 * time.Second
	slots     = 30
	allOfThem = 1<<slots - 1
)

// reached adds up when a direction was held. The zero value knows nothing yet.
type reached struct {
	now        bool
	since, end time.Duration
	// history has a bit for each slot in which it was held, the newest is the lowest.
	// known is how many slots were seen, up to all.
	history uint64
	known   int
}

func (h *reached) add(from, to time.Duration, held bool) {
	passed := int(min(to/slotTime-from/slotTime, slots))
	h.history = h.history << passed & allOfThem
	if held {
		h.history |= 1<<passed - 1
	}
	h.known = min(h.known+passed, slots)
	switch {
	case held && !h.now:
		h.now, h.since, h.end = true, from, to
	case held:
		h.end = to
	case to-h.end > HeldPause:
		h.now = false
	}
}

func (h *reached) verdict() Reached {
	r := Reached{Now: h.now, Since: h.since, Known: h.known > 0}
	if r.Known {
		r.LastMinute = float64(bits.OnesCount64(h.history)) / float64(h.known)
	}
	return r
}
