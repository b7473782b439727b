// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"fmt"
	"slices"

	"github.com/podweir/podweir/plugin/units"
)

// Tree is the desired set of qdiscs of one device, root first. Handles are
// drawn at random when the tree is made, because HTB and prio obey an
// skb->priority whose major number is their handle before any filter.
type Tree struct {
	Qdiscs  []Qdisc
	Classes []Class
	// Filter is where our classifier program hangs; nil if none does.
	Filter *Filter
	// Others are filters on the qdiscs that podweir never makes, each by its kind and preference.
	Others []string
}

// QdiscKind is the kernel's name of a qdisc.
type QdiscKind string

// The kinds that podweir makes.
const (
	KindTBF       QdiscKind = "tbf"
	KindPrio      QdiscKind = "prio"
	KindHTB       QdiscKind = "htb"
	KindBfifo     QdiscKind = "bfifo"
	KindPfifoFast QdiscKind = "pfifo_fast"
)

// TCHandle is major<<16 | minor, as tc(8) writes major:minor.
type TCHandle uint32

// RootParent is the parent of a root qdisc (TC_H_ROOT).
const RootParent TCHandle = 0xFFFFFFFF

func (h TCHandle) String() string {
	if h == RootParent {
		return "root"
	}
	return fmt.Sprintf("%x:%x", uint32(h)>>16, uint32(h)&0xffff)
}

// Qdisc is one queueing discipline with its parameters; a field that its kind
// does not have is zero.
type Qdisc struct {
	Kind   QdiscKind
	Handle TCHandle
	Parent TCHandle
	// Rate is the rate of a TBF in bytes per second.
	Rate units.ByteRate
	// Burst is the bucket of a TBF in bytes.
	Burst units.Bytes
	// Segment is the largest packet that a TBF lets through whole: it cuts what is larger and
	// offloaded, and loses what is larger and is not. 0 leaves that to Burst. In bytes, a
	// multiple of [SegmentUnit].
	Segment units.Bytes
	// Limit is the depth of a bfifo in bytes; a TBF with a child of its own
	// has none of its own.
	Limit units.Bytes
	// Bands is the number of bands of a prio; every priority maps to the second.
	Bands int
	// DefaultClass is the minor number where HTB sends what no filter
	// classifies; 0 is its direct queue.
	DefaultClass uint32
	// PacketLimit of a pfifo_fast is the length of each of its bands; it cannot be
	// read back.
	PacketLimit uint32
	Extras
}

// SegmentUnit is what [SegmentPeak] carries in 64 ns, the unit in which the kernel tells of
// [Qdisc.Segment].
const SegmentUnit units.Bytes = 800

// SegmentPeak is the second limit of a TBF with a [Qdisc.Segment]: the kernel has no other way
// to say it, and 100 Gbit/s for a packet is no limit. It must be more than the first one.
func SegmentPeak(rate units.ByteRate) units.ByteRate {
	const peak units.ByteRate = 12_500_000_000
	if rate >= peak {
		return 2 * rate
	}
	return peak
}

// Extras are parameters of a qdisc or class that podweir never sets: what is not 0 is
// another party's.
type Extras struct {
	// PeakRate is TBF's second limit in bytes per second.
	PeakRate units.ByteRate
	// Overhead is charged for each packet beside its bytes, MinPacket at least, in bytes.
	Overhead, MinPacket uint16
	// Resized says that packets count with other sizes than they have: by a size table, or in the
	// cells of ATM.
	Resized bool
}

// BandPackets is the length of the bands of a pfifo_fast in the tree, 0 if there is
// none. The kernel takes it from the txqueuelen of the device.
func (t *Tree) BandPackets() int {
	for i := range t.Qdiscs {
		if q := &t.Qdiscs[i]; q.Kind == KindPfifoFast {
			return int(q.PacketLimit)
		}
	}
	return 0
}

// Share returns from the tree in the class that holds t's share of a group's limit, nil if in lacks it.
// The kernel lists classes in no order.
func (t *Tree) Share(in *Tree) *Class {
	at := slices.IndexFunc(in.Classes, func(c Class) bool { return c.Handle == t.Classes[0].Handle })
	if at < 0 {
		return nil
	}
	return &in.Classes[at]
}

// Class is an HTB class.
type Class struct {
	Handle TCHandle
	Parent TCHandle
	// Rate and Ceil are in bytes per second.
	Rate, Ceil units.ByteRate
	// Burst and CeilBurst are in bytes.
	Burst, CeilBurst units.Bytes
	// Prio is HTB's priority, 0 first.
	Prio uint32
	Extras
}

// Filter is a direct-action cls_bpf filter on a qdisc of ours.
type Filter struct {
	Parent TCHandle
	// ClassID carries the major number that the answered minor belongs to.
	ClassID TCHandle
}
