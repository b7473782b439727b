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
	// asks is how many of the queues that are [Queue.Unsure] the kernel is asked about at each askTicks-th tick, in
	// turns: the first question of a tick takes as long as four more. With 40 such queues each has its turn every 400 ms.
	asks, askTicks = 10, 5
	// idleLooks is after how many ticks (one second) in which no packet waits all is calm, and after how many looks without
	// a packet it is seen whether another process changed a queue.
	idleLooks = 50
)

// Queue is one direction of a pod.
type Queue interface {
	// Look returns how many bytes have left the queue since it was found, and how many wait in it,
	// at the time now. If ask is true, it asks the kernel.
	Look(now time.Duration, ask bool) (sent, waiting units.Bytes, err error)
	// Still says that Look would return the same as before. It stands for a look.
	Still(now time.Duration) bool
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
	// Of most queues a tick reads nothing else than the first fields, in few cache lines.
	queue Queue
	*share.Member
	// idle counts the looks since anything left the queue or waited in it. still says that nothing did since the last one.
	idle  int
	still bool
	// lost says that the queue cannot be looked at or changed any more, changed that it is to be set again, ask
	// that the next look asks the kernel.
	lost, changed, ask bool
	// set is the share that the queue has. Until it was written here nobody knows whether the
	// classifier has the same.
	written bool
	set     units.ByteRate
	seenAt  time.Duration

	// seen is what had left the queue when it was looked at, told what had by the last [Loop.Sent].
	seen, told units.Bytes
	toldAt     time.Duration
	looked     bool
	id         string
	limit      units.BitRate
	group      *group
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
	// the one that was considered last.
	ring []*member
	next int
	// changed are the members whose share a tick changes, ticks counts, and calm those since packets waited in any queue or
	// any share changed.
	changed     []*member
	ticks, calm int
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
	l.ring = append(l.ring, m)
	g.limit()
	g.shares.Join(m.Member)
}

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
	l.ring = slices.DeleteFunc(l.ring, func(other *member) bool { return other == m })
	m.group.shares.Leave(m.Member)
	m.group.members = slices.DeleteFunc(m.group.members, func(other *member) bool { return other == m })
	if len(m.group.members) == 0 {
		delete(l.groups, m.group.name)
		return
	}
	m.group.limit()
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
	for id, m := range l.members {
		all[id] = Sent{m.seen - m.told, m.seenAt - m.toldAt}
		m.told, m.toldAt = m.seen, m.seenAt
	}
	return all
}

// Divide does one tick. now is of any monotonic clock.
func (l *Loop) Divide(now time.Duration) {
	if l.ticks%askTicks == 0 {
		l.takeTurns()
	}
	l.ticks++
	for _, m := range l.ring { // one after the other: the processor waits for the memory of several at once
		m.still = m.idle > 0 && !m.ask && !m.lost && m.queue.Still(now)
	}
	l.changed = l.changed[:0]
	l.calm++
	for _, g := range l.groups {
		l.divide(g, now)
		for _, m := range g.members {
			if !m.lost && !m.Outside && (!m.written || m.set != m.Share || m.changed) {
				l.changed = append(l.changed, m)
			}
		}
	}
	if len(l.changed) > 0 {
		l.calm = 0
	}
	l.apply(l.changed, int(mostChanges*Tick/time.Second))
}

// Next returns the time until Divide is to be called again: a tick, or two if no packet waited in any queue and no share
// changed for a second.
func (l *Loop) Next() time.Duration {
	if l.calm > idleLooks {
		return 2 * Tick
	}
	return Tick
}

// takeTurns chooses the queues that the kernel is asked about at this tick.
func (l *Loop) takeTurns() {
	taken := 0
	for range l.ring {
		if l.next++; l.next >= len(l.ring) {
			l.next = 0
		}
		if m := l.ring[l.next]; !m.lost && m.queue.Unsure() {
			m.ask = true
			if taken++; taken == asks {
				return
			}
		}
	}
}

// divide looks at the queues of a group and divides its limit.
func (l *Loop) divide(g *group, now time.Duration) {
	for _, m := range g.members {
		if m.lost {
			continue
		}
		if m.idle++; !m.still && !l.look(m, now) {
			continue
		}
		m.seenAt = now
		if m.idle%idleLooks == 0 {
			m.changed = m.queue.Changed()
		}
	}
	g.shares.Divide(now)
}

// look looks at a queue, and says whether it is there.
func (l *Loop) look(m *member, now time.Duration) bool {
	sent, waiting, err := m.queue.Look(now, m.ask)
	m.ask = false
	if err != nil {
		l.lose(m, err)
		return false
	}
	m.Saw(sent, waiting)
	if sent != m.seen || waiting > 0 {
		m.idle = 0
	}
	if waiting > 0 {
		l.calm = 0
	}
	if !m.looked || sent < m.seen { // what a queue sent before, and what one in its place did
		m.told, m.toldAt = sent, now
	}
	m.seen, m.looked = sent, true
	return true
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
