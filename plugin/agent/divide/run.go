// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package divide

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// lookEvery is how often pods that came or changed join their groups, and tellLooks after how many such looks it is recorded
// what the groups do: that takes as long as a look.
const (
	lookEvery = time.Second
	tellLooks = 4
)

// longHeld is how long a group is at its limit before it is reported.
const longHeld = 10 * time.Minute

// Run divides until ctx ends; then each pod has an equal part of its group's limit. onHeld is
// called once for a group that has been at its limit for ten minutes; it may be nil.
func Run(ctx context.Context, paths engine.Paths, log *slog.Logger, onHeld func(*mailbox.Group)) error {
	r := &running{
		paths: paths, clock: mailbox.NewClock(), log: log, onHeld: onHeld, loop: New(log),
		known: make(map[attach.ID]*joined), groups: make(map[key]*mailbox.Group), dropped: make(map[ceiling]drops),
	}
	defer r.end()
	look, tick := time.NewTicker(lookEvery), time.NewTicker(Tick)
	defer look.Stop()
	defer tick.Stop()
	begun, every, looks := time.Now(), Tick, 0
	r.look()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			r.look()
			if looks++; looks%tellLooks == 1 || r.untold() {
				r.tell(time.Now())
			}
		case <-r.ticks(tick):
			r.loop.Divide(time.Since(begun))
			if next := r.loop.Next(); next != every {
				every = next
				tick.Reset(every)
			}
		}
	}
}

type running struct {
	paths engine.Paths
	clock *mailbox.Clock
	log   *slog.Logger
	loop  *Loop
	node  *engine.Node
	known map[attach.ID]*joined

	onHeld func(*mailbox.Group)
	// groups are the groups as tell recorded them at the time told, zero if there were none.
	groups map[key]*mailbox.Group
	told   time.Time
	// dropped is what the ceiling of each limit had dropped at the time told.
	dropped map[ceiling]drops
}

// ceiling names the ceiling of one limit of a group: queues may have joined it with different
// limits. drops is what a ceiling dropped, in packets and wire bytes.
type ceiling struct {
	key
	limit units.BitRate
}

type drops struct{ packets, bytes uint64 }

// key is a group.
type key struct {
	namespace string
	direction terms.Direction
}

func (k key) String() string { return k.namespace + " " + k.direction.String() }

// joined is what is known of an attachment since its record changed, after so many looks.
type joined struct {
	mark   uint64
	looks  int
	shares map[string]*engine.Share
	// outside are the directions that are in a group and have no share.
	outside map[string]*engine.Undivided
	// failed says that it could not be looked at.
	failed bool
}

// ticks is nil while there is nothing to divide: an agent without groups does not wake up.
func (r *running) ticks(t *time.Ticker) <-chan time.Time {
	if len(r.loop.groups) == 0 {
		return nil
	}
	return t.C
}

// look has queues join and leave. What is not there yet is looked at again.
func (r *running) look() {
	if r.node == nil {
		node, err := engine.Open(r.paths)
		if err != nil {
			if !errors.Is(err, engine.ErrNoState) {
				r.log.Warn("limits of groups not divided", "error", err)
			}
			return
		}
		r.node = node
	}
	marks, err := r.node.Marks()
	if err != nil {
		r.log.Warn("attachments not listed: limits of groups stay divided among the known pods", "error", err)
		return
	}
	looks := make(map[attach.ID]int)
	for id, was := range r.known {
		was.looks++
		if after, again := was.joinsAgain(marks[id], r.loop); again {
			looks[id] = after
			r.leave(id, was)
		}
	}
	for id, mark := range marks {
		if r.known[id] == nil {
			r.join(id, mark, looks[id])
		}
	}
}

// joinsAgain says that an attachment, whose record has a mark now, is to leave and join again, and how many looks count: none
// of one that was well until now, so that one that fails is tried again at once.
func (j *joined) joinsAgain(mark uint64, l *Loop) (looks int, is bool) {
	if j.mark != mark || j.lost(l) {
		return 0, true
	}
	return j.looks, j.again()
}

// again says that an attachment that has no share may have one by now: its record is there before
// its queue is, and what keeps it without a share may go. A look takes a millisecond, so it comes
// less and less often, and each four minutes in the end, also where a pod is gone and its record is not.
func (j *joined) again() bool {
	const latest = 256
	return (j.failed || len(j.outside) > 0) && (j.looks&(j.looks-1) == 0 || j.looks%latest == 0)
}

// lost says that a queue cannot be looked at any more.
func (j *joined) lost(l *Loop) bool {
	for name := range j.shares {
		if !l.Has(name) {
			return true
		}
	}
	for name := range j.outside { // those that did not join have no member
		if m := l.members[name]; m != nil && m.lost {
			return true
		}
	}
	return false
}

func (r *running) leave(id attach.ID, was *joined) {
	for name, s := range was.shares {
		r.loop.Leave(name)
		s.Close()
	}
	for name := range was.outside {
		r.loop.Leave(name)
	}
	delete(r.known, id)
}

func (r *running) join(id attach.ID, mark uint64, looks int) {
	now := &joined{mark: mark, looks: looks, shares: make(map[string]*engine.Share), outside: make(map[string]*engine.Undivided)}
	records, err := r.node.Records(id)
	for _, record := range records {
		shares, bad := r.node.Shares(record)
		err = errors.Join(err, bad)
		if bad == nil {
			r.joinOutside(now, record, shares)
		}
		for _, s := range shares {
			name := nameOf(record, s.Direction)
			now.shares[name] = s
			r.loop.Join(key{s.Namespace, s.Direction}.String(), s.Group, name, s, s.Now, s.Most.ByteRate())
			r.log.Debug("queue joined its group", "id", name, "namespace", s.Namespace, "limit", s.Group.String(), "share", s.Now.BitRate().String())
		}
	}
	if err != nil {
		r.log.Debug("attachment not looked at", "id", id.String(), "error", err)
		r.leave(id, now)
		now = &joined{mark: mark, looks: looks, failed: true}
	}
	r.known[id] = now
}

// joinOutside has what an attachment sends without a share taken off what the others have.
func (r *running) joinOutside(now *joined, record *apply.Record, shares []*engine.Share) {
	for _, u := range r.node.Undivided(record, shares) {
		name := nameOf(record, u.Direction)
		now.outside[name] = u
		if u.Counted() {
			r.loop.JoinOutside(key{u.Namespace, u.Direction}.String(), u.Group, name, u)
		}
	}
}

// nameOf is one direction of an interface.
func nameOf(r *apply.Record, d terms.Direction) string {
	return fmt.Sprintf("%v %s %v", r.ID, r.Interface.PodName, d)
}

func (r *running) end() {
	r.loop.End()
	r.paths.Mail().ForgetGroups()
	for id, was := range r.known {
		r.leave(id, was)
	}
	if r.node != nil {
		r.node.Close()
	}
}
