// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"slices"

	"github.com/podweir/podweir/plugin/terms"
)

// noRoom is the limit of a queue that takes no packet: it cannot be 0.
const noRoom = 1

// drops says that the program drops packets of its own, as it does where it makes
// heavy flows share the cap.
func (b *builder) drops() bool { return b.limit.Policy != terms.PolicyFlat }

// dropsWhole says that the program sees offloaded packets before the bucket cuts them
// into segments. A sender in the pod learns of a drop only if all segments of a packet
// are dropped.
func (b *builder) dropsWhole() bool {
	p := b.params
	return !b.divided() && b.drops() && b.facts.Prio && b.ownFilter() && p.Queue == terms.QueueTBF &&
		p.Direction == terms.Egress && p.BurstBytes < gsoBucket
}

// prio makes one that the program is the filter of, or is not.
func (b *builder) prio(parent TCHandle, filtered bool) (TCHandle, error) {
	bands := int(secondBand)
	if filtered && b.drops() {
		bands = int(dropBand)
	}
	return b.qdisc(Qdisc{Kind: KindPrio, Parent: parent, Bands: bands})
}

// dropLeaf makes the queue under a prio or an HTB where its filter sends what is to be
// dropped. What a filter drops itself counts as sent (net/sched/sch_prio.c, prio_enqueue;
// sch_htb.c likewise): TCP in the pod would slow down only when its peer misses the packet.
// A queue without room tells the sender.
func (b *builder) dropLeaf(under TCHandle) error {
	if !b.drops() {
		return nil
	}
	p, class := b.params, under|dropBand
	if slices.ContainsFunc(p.Tree.Qdiscs, func(q Qdisc) bool { return q.Handle == under && q.Kind == KindHTB }) {
		rate := b.limit.Rate.ByteRate()
		p.Tree.Classes = append(p.Tree.Classes, Class{
			Handle: class, Parent: under, Rate: rate, Ceil: rate, Burst: p.BurstBytes, CeilBurst: p.BurstBytes,
		})
	}
	p.Datapath.DropClass = uint16(class)
	_, err := b.qdisc(Qdisc{Kind: KindBfifo, Parent: class, Limit: noRoom})
	return err
}
