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
		if l.Place == PlaceIFB {
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
	if l.Queue == QueueHTB && l.Rate < MinHTBRate {
		return place{}, conflict(d, "Queue", l.Queue.String(), "Rate", l.Rate.String(),
			"htb only from "+MinHTBRate.String()+" up")
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
	p.Queue = l.Queue
	if l.Queue == QueueAuto {
		p.Queue = b.autoQueue(&chosen)
	}
	if p.Queue == 0 || !b.has(p.Queue) {
		return b.lacking(chosen)
	}
	p.Mode, p.Side, p.Hook, p.HookKind = chosen.mode, chosen.side, chosen.hook, chosen.kind
	if p.Queue == QueueNone && l.Mode == ModeAuto {
		// Without a queue there is nothing to place: a pod that asks for policing on
		// a node whose queues stand on an ifb is policed at its own hook.
		p.Mode, p.Side, p.Hook = ModeAuto, SidePod, HookEgress
		if p.Direction == Ingress {
			p.Hook = HookIngress
		}
	}
	if p.Side == SideIFB {
		if !b.facts.IFB {
			return conflict(p.Direction, "Place", l.Place.String(), "", "", "a place that this kernel has (it has no ifb)")
		}
		p.Redirect = true
	}
	return nil
}

// autoQueue is the first queue of the row that this kernel has and that fits.
// Where the mode is open too, a place that the kernel lacks is one more reason
// to police.
func (b *builder) autoQueue(at *place) Queue {
	queues := at.queues
	if at.side == SideIFB && !b.facts.IFB && b.limit.Place == PlaceAuto && b.limit.Mode == ModeAuto {
		b.note("no queue: the kernel has no ifb, or none that packets come through")
		return QueueNone
	}
	for _, q := range queues {
		slow := q == QueueHTB && b.limit.Rate < MinHTBRate
		stamped := q == QueueFQ && b.limit.Policy == PolicyStrict
		if !b.has(q) || slow || stamped {
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

func (b *builder) lacking(chosen place) *FieldError {
	d, l := b.params.Direction, b.limit
	if l.Queue == QueueAuto {
		return conflict(d, "Mode", l.Mode.String(), "", "",
			"the mode auto: this kernel has no queue for it that would fit ("+joinQueues(chosen.queues)+")")
	}
	why := ""
	if l.Queue == QueueTBF && b.facts.TBF {
		why = ", and tbf with traffic that bypasses the cap needs prio or htb"
	}
	return conflict(d, "Queue", l.Queue.String(), "", "",
		"auto or a queue that this kernel has (it lacks what "+l.Queue.String()+" needs"+why+")")
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
