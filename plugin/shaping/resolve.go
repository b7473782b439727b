// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/units"
)

// MinHTBRate is the lowest rate at which HTB is used: below it HTB exceeds the
// cap by up to 39 % (measured at 1 Mbit/s, 4.5 % at 10 Mbit/s), from 100 Mbit/s
// by 0.5 %.
const MinHTBRate units.BitRate = 53_000_000

// place is one row of the design's tables: where a mode puts a direction and
// which queues it can have there, in the order in which auto tries them.
type place struct {
	mode   Mode
	side   Side
	hook   Hook
	kind   HookKind
	queues []Queue
}

// choosePlace is the part of the resolution that depends on the configuration
// alone.
func choosePlace(l *Limit, d Direction) (place, *FieldError) {
	p := placeOf(l.Mode, d)
	if d == Ingress && l.Place != PlaceAuto {
		ownQueue := p.mode == ModeQdisc
		hostHook := p.side == SideHost && l.Place == PlaceHost
		if !ownQueue && !hostHook {
			return place{}, conflict(d, "Place", l.Place.String(), "Mode", l.Mode.String(),
				"a place only with the mode auto or qdisc")
		}
		if l.Place.IFB() {
			p.side = SideIFB
		}
	}
	if l.Mode == ModeAuto {
		p.queues = append(p.queues, QueueNone)
	}
	if l.Queue != QueueAuto && !slices.Contains(p.queues, l.Queue) {
		return place{}, conflict(d, "Mode", l.Mode.String(), "Queue", l.Queue.String(),
			"with this mode the queue auto, "+joinQueues(p.queues))
	}
	return p, nil
}

func placeOf(m Mode, d Direction) place {
	hooked := []Queue{QueueTBF, QueueFQ, QueueNone}
	police := []Queue{QueueNone}
	kind := HookKindTCX
	if m == ModeClsactPodSide || m == ModeClsactHostSide {
		kind = HookKindClsact
	}
	switch m {
	case ModeTCXPodSide, ModeClsactPodSide:
		if d == Egress {
			return place{m, SidePod, HookEgress, kind, hooked}
		}
		return place{m, SidePod, HookIngress, kind, police}
	case ModeTCXHostSide, ModeClsactHostSide:
		if d == Egress {
			return place{m, SideHost, HookIngress, kind, police}
		}
		return place{m, SideHost, HookEgress, kind, hooked}
	default:
		side := SidePod
		if d == Ingress {
			side = SideHost
		}
		// The hook is used only where the program cannot be our filter.
		return place{ModeQdisc, side, HookEgress, HookKindAuto, []Queue{QueueTBF, QueueHTB, QueueFQ}}
	}
}

// resolve chooses mode, place and queue.
func (b *builder) resolve() error {
	l, p := b.limit, b.params
	chosen, bad := choosePlace(l, p.Direction)
	if bad != nil {
		return bad
	}
	if p.Direction == Ingress && b.facts.IngressPastHost && chosen.mode == ModeQdisc && l.Place == PlaceAuto {
		chosen.side = SideIFB
		b.note("ingress may go past the host side of this device")
	}
	if b.policesForIFB(&chosen) {
		b.note("no queue: %s", b.facts.noIFB())
		p.Queue = QueueNone
	} else if p.Queue = b.queue(&chosen); p.Queue == 0 {
		return conflict(p.Direction, "Mode", l.Mode.String(), "", "",
			"the mode auto: this kernel has no queue for it that would fit ("+joinQueues(chosen.queues)+")")
	}
	p.Mode, p.Side, p.Hook, p.HookKind = chosen.mode, chosen.side, chosen.hook, chosen.kind
	if p.Queue == QueueNone && l.Mode == ModeAuto {
		// Without a queue there is nothing to place: a pod that asks for policing on
		// a node whose queues stand on an ifb is policed at its own hook.
		b.atOwnHook()
	}
	if p.Side == SideIFB {
		if !b.facts.IFB {
			return conflict(p.Direction, "Place", l.Place.String(), "", "", "host, or prefer-ifb with the mode auto: "+b.facts.noIFB())
		}
		p.Redirect = true
	}
	return nil
}

// atOwnHook puts the program of a direction at the pod's own hook, which sees all of it.
func (b *builder) atOwnHook() {
	p := b.params
	p.Mode, p.Side, p.Hook, p.HookKind = ModeAuto, SidePod, HookEgress, HookKindAuto
	if p.Direction == Ingress {
		p.Hook = HookIngress
	}
}

// policesForIFB says that the direction is policed because its queue belongs on
// an ifb and the kernel has none that works. The operator's word, for the place or
// for queues of podweir's own, is not turned into something else. A queue that was
// requested is: a limit that is policed is better than none.
func (b *builder) policesForIFB(at *place) bool {
	return at.side == SideIFB && !b.facts.IFB && b.limit.Place != PlaceIFB && b.limit.Mode == ModeAuto &&
		b.limit.Queue != QueueNone
}

// queue is the one that was requested. Where the kernel or the rate cannot have
// it, a limit by another is better than none. 0 means that there is none.
func (b *builder) queue(at *place) Queue {
	if b.limit.Queue == QueueAuto {
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
func (b *builder) unfit(q Queue) string {
	switch {
	case q == QueueHTB && b.limit.Rate < MinHTBRate:
		return "it is used only from " + MinHTBRate.String() + " up"
	case b.has(q):
		return ""
	case q == QueueTBF && b.facts.TBF:
		return "with traffic that bypasses the cap the kernel needs prio or htb below it"
	default:
		return "the kernel lacks it"
	}
}

// autoQueue is the first queue of the row that this kernel has and that fits.
func (b *builder) autoQueue(at *place) Queue {
	queues := at.queues
	for _, q := range queues {
		stamped := q == QueueFQ && b.limit.Policy == PolicyStrict
		if b.unfit(q) != "" || stamped {
			continue
		}
		switch q {
		case queues[0]:
		case QueueNone:
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
func (b *builder) has(q Queue) bool {
	switch q {
	case QueueTBF:
		return b.facts.TBF && (!b.classful() || b.facts.Prio || b.facts.HTB)
	case QueueHTB:
		return b.facts.HTB
	case QueueFQ:
		return b.facts.FQ
	default:
		return true
	}
}

// conflict names one field, or two that contradict each other, by their keys
// in the network configuration.
func conflict(d Direction, field, value, other, otherValue, accepted string) *FieldError {
	e := &FieldError{Field: d.String() + field, Value: value, Accepted: accepted}
	if other != "" {
		e.Field += ", " + d.String() + other
		e.Value += ", " + otherValue
	}
	return e
}

func joinQueues(queues []Queue) string {
	names := make([]string, len(queues))
	for i, q := range queues {
		names[i] = q.String()
	}
	return strings.Join(names, ", ")
}
