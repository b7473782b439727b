// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package share divides the limit of a group among its members; it is pure arithmetic.
//
// A member is one direction of a pod, with a queue that lets out its share. At each tick
// the caller says what left every queue and what waits in it, and [Group.Divide]
// says which shares change. Three rules make the sum of what members send the limit:
//
//   - Members in whose queues packets wait divide the limit by max-min: nobody gets more
//     while another one has less and wants more. The others get somewhat more than comes to
//     them, and one whose queue will be empty by the next tick gets what that takes.
//     One that sends in bursts of a tick or two, with pauses as brief, gets what it needs on
//     average: shares that follow such bursts always come too late.
//   - A member that sends nothing keeps a small share, so that its next packet does not wait
//     for a tick. These shares come on top, a tenth of the limit for all members together.
//   - A ledger holds what the limit allowed and was not sent. What was sent beyond the limit
//     is taken off the next shares, what was not is added to them, up to a bound.
package share

import (
	"math"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/units"
)

const (
	// Tick is how often the limit is divided on a node that is not late. By the next tick a member sends what
	// waits, if it gets what that takes.
	Tick = 20 * time.Millisecond
	// Credit is what a group may send beyond its limit after it sent less, in time at the
	// limit: 0.4 % of a second.
	Credit = 4 * time.Millisecond
	// parkedPart of the limit is what all members have together while they send nothing. All
	// of them can begin at once, and exceed the limit by as much for a tick.
	parkedPart = 10
	// settling is how long the ledger takes to come to zero. The longer, the less a credit is
	// seen in a tenth of a second, and the longer the group pays for what it had too much.
	settling = 100 * time.Millisecond
	// mostDebt keeps members that cannot be divided, or that sent while nobody divided, from
	// stopping the others for long, in time at the limit.
	mostDebt = 200 * time.Millisecond
	// leastBudgetPart of the limit is divided however large the debt is.
	leastBudgetPart = 2
	// A share becomes smaller only by more than a tooMuchPart-th of it, and larger only by more than a
	// tooLittlePart-th: the ledger's credit, which comes and goes with each burst of others, is less.
	tooMuchPart, tooLittlePart = 33, 20
	// nearlyOwnPart of a member's own limit may be missing for ownTicks ticks, where it shall have all of that: shares
	// that follow the bursts of others come near it, and go.
	nearlyOwnPart, ownTicks = 50, 25
	// frame is one packet of Ethernet at an MTU of 1500, in bytes. It leaves an idle queue at once whatever its share is, and its class owes for it in time,
	// which a higher share does not shorten. So the bytes of one packet are no reason to raise a share.
	frame units.Bytes = 1514
	// drainingPart of a share may be unused while the last packets of its queue leave: a tick later all of it is given away.
	drainingPart = 3
	// headroomPart of what comes to a member is added, so that it can send more.
	headroomPart = 4
	// halving is the time after which the rate of a member that stopped counts half as much. Until then
	// a part of its share is unused.
	halving = 10 * time.Millisecond
	// averaged is the time constant of a member's average. Bursts and pauses of at most briefly are brief: two ticks and a
	// half. A member pauses while at most a littlePart-th of its average comes, or of its share if that is less.
	averaged, briefly, littlePart = 100 * time.Millisecond, 50 * time.Millisecond, 4
	// longestTick bounds the time between two ticks in what is computed.
	longestTick = time.Minute
)

// endless is the demand of a member in whose queue more waits than its share lets out by the next tick.
const endless = units.ByteRate(math.MaxInt64)

// Group is a limit and the members that have it together. It is not safe for concurrent
// use.
type Group struct {
	limit   units.ByteRate
	members []*Member
	begun   bool
	last    time.Duration
	// balance is what may be sent beyond the limit, in bytes; less than 0 if too much was.
	balance int64
}

// Member is one queue of a group.
type Member struct {
	// Share is the rate that the queue shall have.
	Share units.ByteRate
	// Most is the member's own limit, 0 for none.
	Most units.ByteRate
	// Outside says that the group does not decide the member's rate: what it sends is taken off
	// what the others divide, and its share stays as it is.
	Outside bool

	sent, sentBefore      units.Bytes
	waiting, waitedBefore units.Bytes
	seen                  bool
	// single says that at most the bytes of one full packet came in the last tick.
	single          bool
	recent, average units.ByteRate
	// phase is how long the burst lasts already, or, if less than 0, the pause. lastBurst is how long the last complete
	// burst took.
	phase, lastBurst time.Duration
	// brief says that the member sends in brief bursts with brief pauses.
	brief   bool
	demand  units.ByteRate
	settled bool
	// nearly counts the ticks at which little was missing to the member's own limit, which it shall have.
	nearly int
}

// New returns a group without members. The limit is at least [units.MinRate].
func New(limit units.BitRate) *Group {
	return &Group{limit: max(limit, units.MinRate).ByteRate()}
}

// SetLimit changes the group's limit from the next tick on. What is in the ledger stays, as
// far as the new limit allows it.
func (g *Group) SetLimit(limit units.BitRate) { g.limit = max(limit, units.MinRate).ByteRate() }

// Join adds a member. A member without a share gets the parked share. Any other keeps its share
// until the next tick, but no more than its own limit, which may be lower by now.
func (g *Group) Join(m *Member) {
	g.members = append(g.members, m)
	if m.Share == 0 {
		m.Share = g.Parked()
	}
	m.Share = m.atMost(m.Share)
}

// Leave removes a member. What it had the others have from the next tick on.
func (g *Group) Leave(m *Member) {
	g.members = slices.DeleteFunc(g.members, func(other *Member) bool { return other == m })
}

// Parked is the share of a member that sends nothing.
func (g *Group) Parked() units.ByteRate {
	return max(g.limit/units.ByteRate(parkedPart*max(len(g.members), 1)), units.MinRate.ByteRate())
}

// Equal is the share of each member if nobody divides any more: all of them together have
// the limit.
func (g *Group) Equal() units.ByteRate {
	return max(g.limit/units.ByteRate(max(len(g.members), 1)), 1)
}

// Saw takes what has left the member's queue since the queue was made, and what waits in it. If
// sent fell, the queue is a new one.
func (m *Member) Saw(sent, waiting units.Bytes) {
	if !m.seen { // a queue that was there before may send its share: after a tick a quarter of recent counts
		m.recent = 4 * m.Share
	}
	if !m.seen || sent < m.sentBefore {
		m.sentBefore, m.waitedBefore = sent, waiting
		m.seen = true
	}
	m.sent, m.waiting = sent, waiting
}

// atMost is a rate within the member's own limit.
func (m *Member) atMost(rate units.ByteRate) units.ByteRate {
	if m.Most != 0 {
		rate = min(rate, m.Most)
	}
	return rate
}

// Divide takes what the members saw since the last tick into the ledger, divides the limit,
// and returns the members whose share changed. now is of any monotonic clock. The first tick
// only begins the ledger: nobody knows yet who sends.
func (g *Group) Divide(now time.Duration) []*Member {
	passed := min(now-g.last, longestTick)
	if !g.begun || passed <= 0 {
		for _, m := range g.members {
			m.sentBefore, m.waitedBefore = m.sent, m.waiting
		}
		g.begun, g.last = true, now
		return nil
	}
	g.last = now
	g.enter(passed)
	g.divide(g.budget())
	return g.changed()
}

// enter writes a tick into the ledger, and sets what each member wants by what came to it.
func (g *Group) enter(passed time.Duration) {
	var sent units.Bytes
	halved := max((passed+halving/2)/halving, 1)
	for _, m := range g.members {
		bytes := m.sent - m.sentBefore
		if bytes == 0 && m.waiting == 0 && m.waitedBefore == 0 && m.recent == 0 && m.average == 0 {
			m.demand = 0
			continue // it rests
		}
		came := bytes + m.waiting
		came -= min(came, m.waitedBefore)
		m.sentBefore, m.waitedBefore = m.sent, m.waiting
		sent += bytes
		// The highest rate of late, and less with each tick: a member that pauses for a tick is
		// not parked at once, and one that stops is soon.
		m.recent = max(rateOf(came, passed), m.recent>>halved)
		m.single = came <= frame
		if !m.Outside {
			m.recent = min(m.recent, g.limit)
		}
		m.follow(min(rateOf(came, passed), g.limit), passed)
		m.want()
	}
	most := int64(min(sent, math.MaxInt64/4))
	g.balance += int64(g.limit.Bytes(passed)) - most
	g.balance = min(max(g.balance, -int64(g.limit.Bytes(mostDebt))), int64(g.limit.Bytes(Credit)))
}

// follow updates the average, and whether the member sends in brief bursts, by the rate at which packets came since the
// last tick.
func (m *Member) follow(came units.ByteRate, passed time.Duration) {
	switch comes := came > min(m.average, m.Share)/littlePart; {
	case comes && m.phase < 0:
		m.brief = m.lastBurst <= briefly && -m.phase <= briefly
		m.phase = passed
	case comes:
		m.phase += passed
	case m.phase > 0:
		m.lastBurst, m.phase = m.phase, -passed
	case m.phase < 0:
		m.phase -= passed
	}
	m.brief = m.brief && m.phase <= briefly && -m.phase <= briefly
	part := passed.Seconds() / (passed + averaged).Seconds()
	m.average = units.ByteRate(float64(m.average) + part*(float64(came)-float64(m.average)))
}

// want sets the demand of the member by what comes to it and waits. A member with brief bursts demands its average, in its
// pauses, too: a burst is over before a tick can react to it, and what waits leaves in the pause.
func (m *Member) want() {
	gone := rateOf(m.waiting, Tick)
	switch {
	case m.brief:
		m.demand = max(m.average+m.average/headroomPart, gone)
	case m.waiting > m.Share.Bytes(Tick):
		m.demand = endless
	default:
		m.demand = m.recent + m.recent/headroomPart + gone
		switch {
		case m.waiting == 0 && m.single:
			m.demand = min(m.demand, m.Share)
		case m.waiting > 0 && m.demand < m.Share && m.demand > m.Share-m.Share/drainingPart:
			m.demand = m.Share
		}
	}
	m.demand = m.atMost(m.demand)
}

// Would sets the shares that members would have of a limit that nobody divides yet, by what each
// of them sends now: at most [Member.Most], and 0 if that is unknown.
func Would(limit units.BitRate, members []*Member, sends func(i int) units.ByteRate) {
	g := New(limit)
	g.members = members
	for i, m := range members {
		m.recent = sends(i)
		m.want()
	}
	g.divide(g.budget())
	g.changed()
}

// budget is what the members may divide until the next tick: without what those outside
// take, but never less than what is parked.
func (g *Group) budget() units.ByteRate {
	budget := max(int64(g.limit)+g.balance*int64(time.Second/settling), int64(g.limit)/leastBudgetPart)
	for _, m := range g.members {
		if m.Outside {
			budget -= int64(m.recent)
		}
	}
	return units.ByteRate(max(budget, int64(g.limit)/parkedPart))
}

// divide sets what each member gets by max-min. A member that wants less than an equal part of
// what is left gets what it wants. When no such member is left, each of the others gets an equal
// part. What no member wants stays with those that have it: a member that pauses can go on with it.
func (g *Group) divide(left units.ByteRate) {
	count := units.ByteRate(0)
	for _, m := range g.members {
		if m.settled = m.Outside; !m.Outside {
			count++
		}
	}
	for more := true; more && count > 0; {
		more = false
		equal := left / count
		for _, m := range g.members {
			if !m.settled && m.demand <= equal {
				m.settled, more = true, true
				left -= m.demand
				count--
			}
		}
	}
	for _, m := range g.members {
		switch {
		case !m.settled:
			m.demand = left / count
		case count == 0 && !m.Outside && m.Share > m.demand:
			more := min(m.Share-m.demand, left)
			m.demand += more
			left -= more
		}
	}
}

// changed gives out what was divided, and returns the members for which that is a change.
func (g *Group) changed() []*Member {
	var changed []*Member
	parked := g.Parked()
	for _, m := range g.members {
		want := m.atMost(max(m.demand, parked))
		// A share at the member's own limit is set exactly in the end: no later change would add the rest.
		// A share is not changed for a member that has enough, and at most a parked share too much. What waits leaves
		// within a tick.
		enough := m.waiting <= m.Share.Bytes(Tick) && want <= m.Share && m.Share <= want+parked
		near := want <= m.Share+m.Share/tooLittlePart && want >= m.Share-m.Share/tooMuchPart
		switch {
		case want != m.Most || want == m.Share:
			m.nearly = 0
		default:
			m.nearly++
			near = near && m.nearly < ownTicks && want <= m.Share+m.Share/nearlyOwnPart
		}
		if m.Outside || enough || near || want == m.Share {
			continue
		}
		m.Share = want
		changed = append(changed, m)
	}
	return changed
}

// rateOf is so many bytes in so long.
func rateOf(bytes units.Bytes, passed time.Duration) units.ByteRate {
	rate := float64(bytes) / passed.Seconds()
	return units.ByteRate(min(rate, float64(units.MaxRate.ByteRate())))
}
