// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package queue makes, reads, changes and removes qdiscs, classes and tc
// filters; it needs CAP_NET_ADMIN in the device's network namespace.
package queue

import (
	"errors"
	"slices"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/units"
)

// Errors that callers branch on. They are wrapped with the device and what was
// found there.
var (
	// ErrForeignRoot means that another party's root qdisc is on the device.
	ErrForeignRoot = errors.New("root qdisc of another party")
	// ErrRebuild means that a tree cannot be changed in place: its kinds or
	// its handles differ.
	ErrRebuild = errors.New("tree has another shape and must be rebuilt")
	// ErrNoQdisc means that a device has no such root qdisc.
	ErrNoQdisc = errors.New("no such root qdisc")
	// ErrFilterExists means that a position on a hook is taken. Filters are
	// never replaced.
	ErrFilterExists = errors.New("filter position is taken")
	// ErrNoEgressHook means that the device has an ingress qdisc where clsact
	// would be.
	ErrNoEgressHook = errors.New("the device has an ingress qdisc instead of clsact")
)

// Stats are the kernel's counters of a qdisc or class.
type Stats struct {
	// Packets and Bytes left it; bytes are wire bytes.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// BacklogBytes and BacklogPackets wait now.
	BacklogBytes   uint64 `json:"backlogBytes"`
	BacklogPackets uint64 `json:"-"`
	// Drops found their band full.
	Drops uint64 `json:"drops"`
}

// Qdisc is a qdisc as it is.
type Qdisc struct {
	shaping.Qdisc
	Stats Stats
	// tbfLimit is the limit of a TBF in bytes.
	tbfLimit units.Bytes
	// blocks are those of the qdisc of the hooks.
	blocks judge.Blocks
}

// Classifier is a program for a filter.
type Classifier struct {
	ProgramFD int
	Name      string
	// Slot is the number that the program finds in skb->tc_classid, 0 for a program
	// that needs none: the minor number of the filter's class.
	Slot uint16
}

// Filter is a tc filter as the kernel tells of it: whose it is, is not known.
type Filter struct {
	// Program has a hook if Parent is one. The redirect of [AttachMirred], whose
	// program the kernel keeps no name of, is called [MirredName].
	judge.Program
	// Parent is the qdisc that the filter is on.
	Parent shaping.TCHandle
	// Protocol is an EtherType in host order, 3 (ETH_P_ALL) for all.
	Protocol uint16
	ClassID  shaping.TCHandle
	// Cookie of the filter's action.
	Cookie string
}

// Device is everything of tc on one device.
type Device struct {
	Index int
	// Tree holds the qdiscs from the root down, HTB's classes and the first
	// direct-action filter on them. What the kernel put there by itself
	// (noqueue, another default, default leaves) is left out. A qdisc of a
	// kind that podweir does not make has its kind and handles only.
	Tree shaping.Tree
	// Classifier is Tree.Filter with its program; nil if there is none.
	Classifier *Filter
	// Qdiscs are those of Tree, with their counters.
	Qdiscs []Qdisc
	// HookQdisc is "clsact", "ingress" or empty.
	HookQdisc string
	// Blocks are those of its hooks.
	Blocks judge.Blocks
	// HookFilters are the filters on the clsact hooks, in the order they run.
	HookFilters []Filter
}

// Root returns the root qdisc, nil if it is the kernel's default.
func (d *Device) Root() *Qdisc {
	for i := range d.Qdiscs {
		if d.Qdiscs[i].Parent == shaping.RootParent {
			return &d.Qdiscs[i]
		}
	}
	return nil
}

// Made says that the queue looks like one of [Build]. It knows a queue of podweir's that no record tells of.
// Its TBF has a child with a handle, and a limit that is this package's own or the child's. That TBF is the root, or
// below an HTB or a prio. There it cuts packets, as that of a share does, or is in the second class, beside
// what bypasses the limit.
func (d *Device) Made() bool {
	root := d.Root()
	if root != nil && (root.Kind == shaping.KindHTB || root.Kind == shaping.KindPrio) {
		below := slices.IndexFunc(d.Qdiscs, func(q Qdisc) bool {
			return q.Parent&majorMask == root.Handle && (q.Segment != 0 || q.Kind == shaping.KindTBF && q.Parent == root.Handle|2)
		})
		if below < 0 {
			return false
		}
		root = &d.Qdiscs[below]
	}
	if root == nil || root.Kind != shaping.KindTBF {
		return false
	}
	for i := range d.Qdiscs {
		q := &d.Qdiscs[i]
		if q.Parent&majorMask != root.Handle || q.Handle == 0 {
			continue
		}
		switch q.Kind {
		case shaping.KindBfifo:
			return root.tbfLimit == interimLimit || root.tbfLimit == q.Limit
		case shaping.KindPrio, shaping.KindPfifoFast:
			return root.tbfLimit == interimLimit
		default:
			return false
		}
	}
	return false
}
