// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/terms"
)

// place is one row of the design's tables: where a mode puts a direction and
// which queues it can have there, in the order in which auto tries them.
type place struct {
	mode   terms.Mode
	side   terms.Side
	hook   terms.Hook
	kind   terms.HookKind
	queues []terms.Queue
}

// choosePlace is the part of the resolution that depends on the configuration
// alone.
func choosePlace(l *Limit, d terms.Direction) (place, *FieldError) {
	p := placeOf(l.Mode, d)
	if d == terms.Ingress && l.Place != terms.PlaceAuto {
		ownQueue := p.mode == terms.ModeQdisc
		hostHook := p.side == terms.SideHost && l.Place == terms.PlaceHost
		if !ownQueue && !hostHook {
			return place{}, conflict(d, "Place", l.Place.String(), "Mode", l.Mode.String(),
				"a place only with the mode auto or qdisc")
		}
		if l.Place.IFB() {
			p.side = terms.SideIFB
		}
	}
	if l.Mode == terms.ModeAuto {
		p.queues = append(p.queues, terms.QueueNone)
	}
	if l.Queue != terms.QueueAuto && !slices.Contains(p.queues, l.Queue) {
		return place{}, conflict(d, "Mode", l.Mode.String(), "Queue", l.Queue.String(),
			"with this mode the queue auto, "+joinQueues(p.queues))
	}
	return p, nil
}

func placeOf(m terms.Mode, d terms.Direction) place {
	hooked := []terms.Queue{terms.QueueTBF, terms.QueueNone}
	police := []terms.Queue{terms.QueueNone}
	kind := terms.HookKindTCX
	if m == terms.ModeClsactPodSide || m == terms.ModeClsactHostSide {
		kind = terms.HookKindClsact
	}
	switch m {
	case terms.ModeTCXPodSide, terms.ModeClsactPodSide:
		if d == terms.Egress {
			return place{m, terms.SidePod, terms.HookEgress, kind, hooked}
		}
		return place{m, terms.SidePod, terms.HookIngress, kind, police}
	case terms.ModeTCXHostSide, terms.ModeClsactHostSide:
		if d == terms.Egress {
			return place{m, terms.SideHost, terms.HookIngress, kind, police}
		}
		return place{m, terms.SideHost, terms.HookEgress, kind, hooked}
	default:
		side := terms.SidePod
		if d == terms.Ingress {
			side = terms.SideHost
		}
		// The hook is used only where the program cannot be our filter.
		return place{terms.ModeQdisc, side, terms.HookEgress, terms.HookKindAuto, []terms.Queue{terms.QueueTBF}}
	}
}

// resolve chooses mode, place and queue.
func (b *builder) resolve() error {
	l, p := b.limit, b.params
	chosen, bad := choosePlace(l, p.Direction)
	if bad != nil {
		return bad
	}
	if p.Direction == terms.Ingress && b.facts.PastHost && chosen.mode == terms.ModeQdisc && l.Place == terms.PlaceAuto {
		chosen.side = terms.SideIFB
		b.note("ingress may go past the host side of this device")
	}
	if b.policesForIFB(&chosen) {
		b.note("no queue: %s", b.facts.noIFB())
		p.Queue = terms.QueueNone
	} else if p.Queue = b.queue(&chosen); p.Queue == 0 {
		return fmt.Errorf("this kernel has no queue that would fit (%s)", joinQueues(chosen.queues))
	}
	p.Mode, p.Side, p.Hook, p.HookKind = chosen.mode, chosen.side, chosen.hook, chosen.kind
	if p.Queue == terms.QueueNone && l.Mode == terms.ModeAuto {
		// Without a queue there is nothing to place: a pod that asks for policing on
		// a node whose queues stand on an ifb is policed at its own hook.
		b.atOwnHook()
	}
	if p.Side == terms.SideIFB {
		if !b.facts.IFB {
			why := b.facts.noIFB()
			if !b.facts.PastHost { // else that place would not see all packets
				why += "; the place host needs no ifb"
			}
			return errors.New(why)
		}
		p.Redirect = true
	}
	return nil
}

// atOwnHook puts the program of a direction at the pod's own hook, which sees all of it.
func (b *builder) atOwnHook() {
	p := b.params
	p.Mode, p.Side, p.Hook, p.HookKind = terms.ModeAuto, terms.SidePod, terms.HookEgress, terms.HookKindAuto
	if p.Direction == terms.Ingress {
		p.Hook = terms.HookIngress
	}
}

// policesForIFB says that the direction is policed because its queue belongs on
// an ifb and the kernel has none that works. The operator's word, for the place or
// for queues of podweir's own, is not turned into something else. A queue that was
// requested is: a limit that is policed is better than none.
func (b *builder) policesForIFB(at *place) bool {
	return at.side == terms.SideIFB && !b.facts.IFB && b.limit.Place != terms.PlaceIFB && b.limit.Mode == terms.ModeAuto &&
		b.limit.Queue != terms.QueueNone
}

// queue is the one that was requested. Where the kernel or the rate cannot have
// it, a limit by another is better than none. 0 means that there is none.
func (b *builder) queue(at *place) terms.Queue {
	if b.limit.Queue == terms.QueueAuto {
		return b.autoQueue(at)
	}
	why := b.unfit(b.limit.Queue)
	if why == "" {
		return b.limit.Queue
	}
	b.params.Decline("not the queue " + b.limit.Queue.String() + ": " + why)
	return b.autoQueue(at)
}

// unfit says why a queue is not available; it is empty if it can.
func (b *builder) unfit(q terms.Queue) string {
	switch {
	case b.has(q):
		return ""
	case q == terms.QueueTBF && b.facts.TBF:
		return "with traffic that bypasses the cap the kernel needs prio or htb below it"
	default:
		return "the kernel lacks it"
	}
}

// autoQueue is the first queue of the row that this kernel has and that fits.
func (b *builder) autoQueue(at *place) terms.Queue {
	queues := at.queues
	for _, q := range queues {
		if b.unfit(q) != "" {
			continue
		}
		switch q {
		case queues[0]:
		case terms.QueueNone:
			b.note("no queue: the kernel lacks %s that would fit", joinQueues(queues[:len(queues)-1]))
		default:
			b.note("queue %s: the kernel lacks %s that would fit", q, joinQueues(queues[:slices.Index(queues, q)]))
		}
		return q
	}
	return 0
}

// has says whether the kernel can build a queue, with a classful root if some
// packets bypass the cap.
func (b *builder) has(q terms.Queue) bool {
	return q != terms.QueueTBF || b.facts.TBF && (!b.classful() || b.facts.Prio || b.facts.HTB)
}

// conflict names two fields that contradict each other, by their keys in the network
// configuration.
func conflict(d terms.Direction, field, value, other, otherValue, accepted string) *FieldError {
	return &FieldError{Field: d.String() + field + ", " + d.String() + other, Value: value + ", " + otherValue, Accepted: accepted}
}

func joinQueues(queues []terms.Queue) string {
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.String()
	}
	return strings.Join(names, ", ")
}
