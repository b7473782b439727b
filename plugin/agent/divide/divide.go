// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package divide divides the limits that pods of a node have together: at each tick it looks
// at their queues and changes their shares.
package divide

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/share"
	"github.com/podweir/podweir/plugin/units"
)

const (
	// Tick is how often shares are changed.
	Tick = share.Tick
	// mostChanges is how many shares are changed in a second at most. Larger ones wait: what
	// others had before they get them must be gone.
	mostChanges = 3000
	// asksPerTick is how many of the queues that are [Queue.Unsure] the kernel is asked about at
	// each tick, in turns. With 40 such queues each has its turn every 400 ms.
	asksPerTick = 2
	// idleTicks is after how many ticks (one second) without a packet there are half as many. In so many ticks it is seen once of
	// each idle queue whether another process changed it.
	idleTicks = 50
	// restLooks is after how many looks without a packet a queue rests, if its share is the parked one.
	restLooks = 10
)

// Queue is one direction of a pod.
type Queue interface {
	// Look returns how many bytes have left the queue since it was found, and how many wait in it,
	// at the time now. If ask is true, it asks the kernel.
	Look(now time.Duration, ask bool) (sent, waiting units.Bytes, err error)
	// Still says that Look will return the same as long as Counts does. It needs no look then, and Rested stands for those
	// that were left out until a time.
	Still() bool
	Counts() *engine.Counts
	Rested(until time.Duration)
	// Unsure says that the kernel should be asked now and then.
	Unsure() bool
	// Set changes its share to a rate, in bytes per second. The error wraps [engine.ErrBusy] if it is to
	// be tried at the next tick.
	Set(rate units.ByteRate) error
	// Changed says that Set is to be called again: another process changed what it did, or it did only a part.
	Changed() bool
}

// member is a queue in its group.
type member struct {
	*share.Member
	queue Queue
	id    string
	limit units.BitRate
	// set is the share that the queue has. Until it was written here nobody knows whether the
	// classifier has the same.
	set     units.ByteRate
	written bool
	// seen is what had left the queue when it was looked at, told what had by the last [Loop.Sent].
	seen, told     units.Bytes
	seenAt, toldAt time.Duration
	looked         bool
	// idle counts the looks since anything left the queue or waited in it.
	idle int
	// lost says that the queue cannot be looked at or changed any more, changed that it is to be set again, ask
	// that the next look asks the kernel.
	lost, changed, ask bool
	group              *group
}

// place is that of a member in the ring. A tick reads no more than that, and the counter, of a member that rests: all else is in no
// cache of the processor.
type place struct {
	*member
	counts *engine.Counts
	// rests says that the queue has about the parked share, and nothing came since it had counted so much.
	rests   bool
	counted uint64
}

type group struct {
	name    string
	shares  *share.Group
	members []*member
}

// Loop divides. It is not safe for concurrent use.
type Loop struct {
	log     *slog.Logger
	groups  map[string]*group
	members map[string]*member
	// ring has all members, in the order in which the kernel is asked about them. next is the index of
	// the one that was considered last, and checked of the one of which it was seen last whether another process changed it.
	ring          []place
	next, checked int
	// awake are the members that a tick looks at, and changed those whose share it changes. now is when it was.
	awake, changed []*member
	now            time.Duration
	// idle counts the ticks since anything went through any queue.
	idle int
}

// New returns a loop without groups.
func New(log *slog.Logger) *Loop {
	return &Loop{log: log, groups: make(map[string]*group), members: make(map[string]*member)}
}

// Join adds a queue, by a name that no other has, to a group and its limit: of different ones the
// lowest that a queue joined with. The queue has the share now; most is its own limit.
func (l *Loop) Join(name string, limit units.BitRate, id string, q Queue, now, most units.ByteRate) {
	l.join(name, limit, id, q, &share.Member{Share: now, Most: most})
}

// JoinOutside adds a queue whose rate nobody divides: what it sends is taken off what the others
// have.
func (l *Loop) JoinOutside(name string, limit units.BitRate, id string, q Queue) {
	l.join(name, limit, id, q, &share.Member{Outside: true})
}

func (l *Loop) join(name string, limit units.BitRate, id string, q Queue, as *share.Member) {
	g := l.groups[name]
	if g == nil {
		g = &group{name: name, shares: share.New(limit)}
		l.groups[name] = g
	}
	m := &member{Member: as, queue: q, id: id, limit: limit, group: g, set: as.Share}
	g.members = append(g.members, m)
	l.members[id] = m
	l.ring = append(l.ring, place{member: m, counts: q.Counts()})
	g.limit()
	g.shares.Join(m.Member)
	l.wakeAll(g)
}

// limit sets the group's limit.
func (g *group) limit() {
	lowest := slices.MinFunc(g.members, func(a, b *member) int { return cmp.Compare(a.limit, b.limit) })
	g.shares.SetLimit(lowest.limit)
}

// Leave removes a queue that joined.
func (l *Loop) Leave(id string) {
	m := l.members[id]
	if m == nil {
		return
	}
	delete(l.members, id)
	l.ring = slices.DeleteFunc(l.ring, func(p place) bool { return p.member == m })
	m.group.shares.Leave(m.Member)
	m.group.members = slices.DeleteFunc(m.group.members, func(other *member) bool { return other == m })
	if len(m.group.members) == 0 {
		delete(l.groups, m.group.name)
		return
	}
	m.group.limit()
	l.wakeAll(m.group)
}

// wakeAll has all members of a group looked at: the parked share is another one.
func (l *Loop) wakeAll(g *group) {
	for i := range l.ring {
		if p := &l.ring[i]; p.group == g {
			l.wake(p)
		}
	}
}

// wake ends the rest of a member.
func (l *Loop) wake(p *place) {
	if p.rests {
		p.rests, p.seenAt = false, l.now
		p.queue.Rested(l.now)
		p.group.shares.Wake(p.Member)
	}
}

// Has says whether a queue joined.
func (l *Loop) Has(id string) bool {
	m := l.members[id]
	return m != nil && !m.lost
}

// Sent is what left a queue, and in what time: between two ticks at which it was looked at.
type Sent struct {
	Bytes units.Bytes
	In    time.Duration
}

// bitsPerSecond is 0 if the queue was not looked at.
func (s Sent) bitsPerSecond() float64 {
	if s.In <= 0 {
		return 0
	}
	return float64(s.Bytes) * 8 / s.In.Seconds()
}

// Sent returns what has left each queue since it was asked for last, by the queues' names.
func (l *Loop) Sent() map[string]Sent {
	all := make(map[string]Sent, len(l.members))
	for i := range l.ring {
		m := l.ring[i].member
		if l.ring[i].rests {
			m.seenAt = l.now
		}
		all[m.id] = Sent{m.seen - m.told, m.seenAt - m.toldAt}
		m.told, m.toldAt = m.seen, m.seenAt
	}
	return all
}

// Divide does one tick. now is of any monotonic clock.
func (l *Loop) Divide(now time.Duration) {
	l.takeTurns()
	l.awake, l.changed, l.idle = l.awake[:0], l.changed[:0], l.idle+1
	for i := range l.ring {
		p := &l.ring[i]
		if p.rests && p.counts.Bytes() == p.counted {
			continue
		}
		l.wake(p)
		l.look(p, now)
	}
	l.now = now
	for _, g := range l.groups {
		g.shares.Divide(now)
	}
	for _, m := range l.awake {
		if !m.Outside && (!m.written || m.set != m.Share || m.changed) {
			l.changed = append(l.changed, m)
		}
	}
	l.apply(l.changed, int(mostChanges*Tick/time.Second))
}

// Next returns the time until Divide is to be called again: a tick, or two if nothing went through any queue for a
// second.
func (l *Loop) Next() time.Duration {
	if l.idle > idleTicks {
		return 2 * Tick
	}
	return Tick
}

// takeTurns chooses the queues that the kernel is asked about at this tick, and those of which it is seen whether another
// process changed them.
func (l *Loop) takeTurns() {
	asks := 0
	for range l.ring {
		if l.next++; l.next >= len(l.ring) {
			l.next = 0
		}
		if p := &l.ring[l.next]; !p.rests && !p.lost && p.queue.Unsure() {
			p.ask = true
			if asks++; asks == asksPerTick {
				break
			}
		}
	}
	for range (len(l.ring) + idleTicks - 1) / idleTicks {
		if l.checked++; l.checked >= len(l.ring) {
			l.checked = 0
		}
		if p := &l.ring[l.checked]; !p.lost && p.queue.Changed() {
			p.changed = true
			l.wake(p)
		}
	}
}

// look looks at a queue, if it is there.
func (l *Loop) look(p *place, now time.Duration) {
	m := p.member
	if m.lost {
		return
	}
	m.idle++
	rests := m.idle >= restLooks && (m.Outside || m.written && m.set == m.Share) && !m.changed && !m.ask
	if rests { // before the look: what comes after it ends the rest
		p.counted = p.counts.Bytes()
	}
	sent, waiting, err := m.queue.Look(now, m.ask)
	m.ask = false
	if err != nil {
		l.lose(m, err)
		return
	}
	m.Saw(sent, waiting)
	if sent != m.seen || waiting > 0 {
		m.idle, l.idle = 0, 0
		m.changed = m.changed || m.queue.Changed()
	}
	if !m.looked || sent < m.seen { // what a queue sent before, and what one in its place did
		m.told, m.toldAt = sent, now
	}
	m.seen, m.seenAt, m.looked = sent, now, true
	if p.rests = rests && m.idle > 0 && m.queue.Still() && m.group.shares.Rest(m.Member); !p.rests {
		l.awake = append(l.awake, m)
	}
}

// apply changes so many shares at most, those that become smaller first.
func (l *Loop) apply(changed []*member, most int) {
	slices.SortFunc(changed, func(a, b *member) int {
		return cmp.Compare(int64(a.Share)-int64(a.set), int64(b.Share)-int64(b.set))
	})
	for _, m := range changed[:min(len(changed), most)] {
		switch err := m.queue.Set(m.Share); {
		case err == nil:
			m.set, m.written, m.changed = m.Share, true, false
		case !errors.Is(err, engine.ErrBusy):
			l.lose(m, err)
		}
	}
}

// lose leaves a queue alone until it joins again.
func (l *Loop) lose(m *member, err error) {
	l.log.Info("a queue left its group", "id", m.id, "error", err)
	m.lost = true
	m.group.shares.Leave(m.Member)
	l.wakeAll(m.group)
}

// End gives every queue an equal part of its group's limit: nobody divides from now on.
func (l *Loop) End() {
	var all []*member
	for _, g := range l.groups {
		for _, m := range g.members {
			m.Share = g.shares.Equal()
			if m.Most != 0 {
				m.Share = min(m.Share, m.Most)
			}
			if !m.lost && !m.Outside {
				all = append(all, m)
			}
		}
	}
	l.apply(all, len(all))
}
