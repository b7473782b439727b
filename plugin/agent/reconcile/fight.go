// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

const (
	// fightMends is how many mends of one direction within [mendWindow] are taken for
	// a party that takes the limit away, and not for one who changes a device.
	fightMends = 3
	// fightAtOnce is how soon after a mend another one is taken for that already, where
	// nothing else holds the limit: each mend takes some ten milliseconds, in which a
	// pod sends many times its limit.
	fightAtOnce = time.Second
	// quiet is how long after the last mend a fight is over.
	quiet = 5 * time.Minute
)

// fightKey is what is fought for.
type fightKey struct {
	id        attach.ID
	direction terms.Direction
}

// fight is what was taken away of one direction of one attachment. Its times are
// those of the agent's own clock; an agent that starts knows of none.
type fight struct {
	// mends are the newest mends, the oldest first.
	mends []time.Time
	// since is when it became a fight, zero if it is none.
	since time.Time
	// inPod says that what is taken away is in the pod's reach.
	inPod bool
	// what was taken away last.
	what string
}

// mended counts a mend. exposed says that nothing else holds the limit meanwhile.
func (f *fight) mended(now time.Time, what string, inPod, exposed bool) {
	f.end(now)
	f.mends = append(slices.DeleteFunc(f.mends, func(t time.Time) bool { return now.Sub(t) > mendWindow }), now)
	f.what, f.inPod = what, inPod
	n := len(f.mends)
	atOnce := exposed && inPod && n > 1 && f.mends[n-1].Sub(f.mends[n-2]) < fightAtOnce
	if f.since.IsZero() && (n >= fightMends || atOnce) {
		f.since = now
	}
}

// over is when a fight that is on ends without another mend.
func (f *fight) over() time.Time { return f.mends[len(f.mends)-1].Add(quiet) }

func (f *fight) end(now time.Time) {
	if !f.since.IsZero() && !now.Before(f.over()) {
		f.since, f.mends = time.Time{}, nil
	}
}

func (f *fight) on(now time.Time) bool {
	f.end(now)
	return !f.since.IsZero()
}

// taker is who may be on the other side.
func (f *fight) taker() mailbox.Taker {
	if f.inPod {
		return mailbox.TakerPod
	}
	return mailbox.TakerNode
}

// Mend is one difference that was put right.
type Mend struct {
	ID        attach.ID
	Direction terms.Direction
	At        time.Time
	// What differed.
	What string
}

// Tampering is a fight that goes on: the limit of one direction is taken away again
// and again.
type Tampering struct {
	ID        attach.ID
	Direction terms.Direction
	Since     time.Time
	By        mailbox.Taker
}

// fightOf returns what is known of a direction, to be changed under the lock.
func (r *Reconciler) fightOf(of key, id attach.ID, d terms.Direction) *fight {
	s, k := r.stateOf(of), fightKey{id, d}
	if s.fights == nil {
		s.fights = make(map[fightKey]*fight)
	}
	if s.fights[k] == nil {
		s.fights[k] = &fight{}
	}
	return s.fights[k]
}

// drift is [apply.Executor.Drifted]: it counts one mend for each direction.
func (l *look) drift(id attach.ID, plan []attach.Action) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range terms.Directions {
		i := slices.IndexFunc(plan, func(a attach.Action) bool { return a.Direction == d })
		if i < 0 || plan[i].State != nil && plan[i].State.Params.Observes() {
			continue // without a limit in force there is nothing to fight for
		}
		if resized(plan, d, l.wanted(id, d)) {
			continue
		}
		inPod := slices.ContainsFunc(plan, func(a attach.Action) bool { return a.Direction == d && a.InPod() })
		state := plan[i].State
		exposed := state == nil || !state.Params.Ceiling
		l.fightOf(l.key, id, d).mended(now, plan[i].String(), inPod, exposed)
	}
}

// wanted is the queue that the look before wanted of a direction, nil if it is not known. It is called under the lock.
func (l *look) wanted(id attach.ID, d terms.Direction) *shaping.Tree {
	if s := l.states[l.key]; s != nil {
		for i := range s.Limits {
			if k := &s.Limits[i]; k.ID == id && k.Direction.Is == d {
				return k.Tree
			}
		}
	}
	return nil
}

// resized says that a direction differs only because podweir wants other sizes of it than before, as after a change of
// the MTU. What is in the slot nobody but podweir writes; a queue has to be as podweir wanted it before.
func resized(plan []attach.Action, d terms.Direction, before *shaping.Tree) bool {
	wish := false
	for _, a := range plan {
		switch {
		case a.Direction != d:
		case a.Kind == attach.UpdateDataplane, a.Kind == attach.ChangeTree && wasWanted(before, &a):
			wish = true
		case a.Kind != attach.LimitOffload && a.Kind != attach.PaceTCP:
			return false
		}
	}
	return wish
}

// wasWanted says that the queue which a step changes is as it was wanted before. The share of a group's limit may have
// another rate since, which is wanted still.
func wasWanted(before *shaping.Tree, a *attach.Action) bool {
	if before == nil {
		return false
	}
	is, p := *a.Tree, a.State.Params
	if p.Divided {
		is.Classes = slices.Clone(is.Classes)
		was, share, now := p.Tree.Share(before), p.Tree.Share(&is), p.Tree.Share(p.Tree)
		if was != nil && share != nil && share.Rate == now.Rate && share.Ceil == now.Ceil {
			share.Rate, share.Ceil, share.Burst, share.CeilBurst = was.Rate, was.Ceil, was.Burst, was.CeilBurst
		}
	}
	diff, _ := attach.TreeDiff(before, &is)
	return diff == ""
}

func (r *Reconciler) stateOf(k key) *state {
	if r.states[k] == nil {
		r.states[k] = &state{}
	}
	return r.states[k]
}

// fighting takes the fights of the pod, and looks again when the next one is over.
func (l *look) fighting() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.states[l.key]
	if s == nil {
		return
	}
	l.Tampered, l.Mends = nil, nil
	for k, f := range s.fights {
		if n := len(f.mends); n > 0 && now.Sub(f.mends[n-1]) <= mendWindow {
			l.Mends = append(l.Mends, Mend{ID: k.id, Direction: k.direction, At: f.mends[n-1], What: f.what})
		}
		if !f.on(now) {
			continue
		}
		l.Tampered = append(l.Tampered, Tampering{ID: k.id, Direction: k.direction, Since: f.since, By: f.taker()})
		l.queue.add(l.key, f.over().Sub(now)+time.Millisecond)
	}
	slices.SortFunc(l.Tampered, func(a, b Tampering) int { return int(a.Direction) - int(b.Direction) })
}

// tellTampering tells the owner of a limit that is taken away again and again, and
// what holds it meanwhile. The words are the same as long as it lasts: it is one Event.
func (l *look) tellTampering() {
	if len(l.Tampered) > 0 {
		t := &l.Tampered[0]
		l.warn("BandwidthTampered", mailbox.TakenAway(t.Direction, t.By)+"; "+l.heldBy(t))
	}
}

// heldBy says what keeps the limit while it is fought for.
func (l *look) heldBy(t *Tampering) string {
	if slices.ContainsFunc(l.Limits, func(p KeptLimit) bool { return p.ID == t.ID && p.Direction.Is == t.Direction && p.Ceiling }) {
		return "the ceiling on the host side holds it meanwhile"
	}
	return "it is put back each time, and the pod may exceed it in between"
}
