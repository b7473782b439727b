// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/units"
)

// Change brings a running tree from one set of parameters to another without
// touching the packets in it. A TBF that is changed starts with a full bucket,
// and what waits leaves at the new rate from the next packet on that comes or
// was due at the old rate. from may be what was observed.
//
// Returns an error wrapping [ErrRebuild], and changes nothing, if a qdisc or
// class of to is not in from, a kind differs, or a parameter does that the
// kernel cannot change in place.
func Change(h *hostif.Handle, ifindex int, from, to *shaping.Tree) error {
	qdiscs, classes, err := changes(from, to)
	if err != nil {
		return fmt.Errorf("change queue on ifindex %d: %w", ifindex, err)
	}
	for i := range qdiscs {
		q := &qdiscs[i]
		if err := setQdisc(h, ifindex, q, childLimit(to, q.Handle), 0); err != nil {
			return fmt.Errorf("change queue on ifindex %d in %s: %w", ifindex, h.Where(), err)
		}
	}
	for i := range classes {
		if err := setClass(h, ifindex, &classes[i], 0); err != nil {
			return fmt.Errorf("change queue on ifindex %d in %s: %w", ifindex, h.Where(), err)
		}
	}
	return nil
}

// ChangeShare changes the rate and burst of a class, which keeps its tokens: nothing is
// refilled. What waits goes on at the new rate.
func ChangeShare(h *hostif.Handle, ifindex int, c *shaping.Class) error {
	if err := setClass(h, ifindex, c, 0); err != nil {
		return fmt.Errorf("change share on ifindex %d in %s: %w", ifindex, h.Where(), err)
	}
	return nil
}

// changes returns the qdiscs and classes of to whose parameters differ.
func changes(from, to *shaping.Tree) (qdiscs []shaping.Qdisc, classes []shaping.Class, err error) {
	if len(from.Qdiscs) != len(to.Qdiscs) || len(from.Classes) != len(to.Classes) ||
		(from.Filter == nil) != (to.Filter == nil) {
		return nil, nil, ErrRebuild
	}
	for _, want := range to.Qdiscs {
		i := slices.IndexFunc(from.Qdiscs, func(q shaping.Qdisc) bool {
			return q.Parent == want.Parent && q.Kind == want.Kind && (want.Handle == 0 || q.Handle == want.Handle)
		})
		if i < 0 {
			return nil, nil, fmt.Errorf("no %s %s under %s: %w",
				want.Kind, handleString(want.Handle), handleString(want.Parent), ErrRebuild)
		}
		want.Handle = from.Qdiscs[i].Handle
		switch {
		case want == from.Qdiscs[i]:
		case want.Kind == shaping.KindPfifoFast:
			// The kernel tells nothing of its length, and keeps it.
		case want.Kind == shaping.KindTBF || want.Kind == shaping.KindBfifo:
			qdiscs = append(qdiscs, want)
		default:
			// HTB's default is fixed, and prio would drop what is in a band that
			// goes.
			return nil, nil, fmt.Errorf("%s %s has other parameters: %w",
				want.Kind, handleString(want.Handle), ErrRebuild)
		}
	}
	for _, want := range to.Classes {
		i := slices.IndexFunc(from.Classes, func(c shaping.Class) bool {
			return c.Handle == want.Handle && c.Parent == want.Parent
		})
		if i < 0 {
			return nil, nil, fmt.Errorf("no class %s: %w", handleString(want.Handle), ErrRebuild)
		}
		if !want.Divided && want != from.Classes[i] {
			classes = append(classes, want)
		}
	}
	return qdiscs, classes, nil
}

// childLimit is the limit to give to a TBF that has a child: the kernel hands
// it on to a fifo (fifo_set_limit), and 0 would make it drop everything.
func childLimit(t *shaping.Tree, tbf shaping.TCHandle) units.Bytes {
	for _, q := range t.Qdiscs {
		if q.Parent&majorMask == tbf&majorMask && q.Kind == shaping.KindBfifo {
			return q.Limit
		}
	}
	return interimLimit
}
