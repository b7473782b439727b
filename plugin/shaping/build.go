// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"errors"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Minor numbers in our trees.
const (
	// tbfChild is the only class of a TBF (net/sched/sch_tbf.c, tbf_find).
	tbfChild TCHandle = 1
	// In a classful root and in a prio: the first band and the second. Of a prio
	// with a filter the third is for what that drops.
	firstBand  TCHandle = 1
	secondBand TCHandle = 2
	dropBand   TCHandle = 3
	// shareBand is the class that holds a share, above both bands' classes of an HTB.
	shareBand TCHandle = 4
	// htbDirect is answered for HTB's direct queue, which has no shaper.
	htbDirect TCHandle = 0
)

// Priorities for pfifo_fast (net/sched/sch_generic.c, sch_default_prio2band):
// TC_PRIO_INTERACTIVE goes to its first band, TC_PRIO_BULK to its last.
const (
	priorityFirst uint32 = 6
	priorityLast  uint32 = 2
)

// maxDraws bounds the search for a free major; a random draw fails less than
// once in 10,000.
const maxDraws = 1000

var errMajors = errors.New("no usable handle major was given")

// build makes the tree and says where the program goes.
func (b *builder) build() error {
	p := b.params
	if p.Queue == terms.QueueNone {
		p.Program = ProgramPolice
		return nil
	}
	p.Tree = &Tree{}
	if b.divided() {
		return b.buildDivided()
	}
	return b.buildTBF()
}

// buildTBF makes the TBF and its bands, behind a classful root where some
// packets bypass the cap.
func (b *builder) buildTBF() error {
	p := b.params
	root, parent := TCHandle(0), RootParent
	if b.classful() {
		var err error
		if root, err = b.openRoot(); err != nil {
			return err
		}
		parent = root | secondBand
	}
	tbf, err := b.qdisc(Qdisc{Kind: KindTBF, Parent: parent, Rate: b.limit.Rate.ByteRate(), Burst: p.BurstBytes})
	if err != nil {
		return err
	}
	inner, err := b.bands(tbf | tbfChild)
	if err != nil {
		return err
	}
	switch {
	case b.classful():
		return b.classifyAtRoot(root)
	case b.limit.Policy == terms.PolicyFlat:
		p.Hook, p.HookKind = terms.HookNone, terms.HookKindAuto
	case inner != 0:
		p.Datapath.LightClass, p.Datapath.HeavyClass = uint16(firstBand), uint16(secondBand)
		return b.filter(inner)
	default:
		p.Program = ProgramBand
	}
	return nil
}

// openRoot makes a root whose second class is to hold the TBF, and whose first
// class, or direct queue, has no shaper.
func (b *builder) openRoot() (TCHandle, error) {
	dp := &b.params.Datapath
	if b.facts.Prio {
		root, err := b.prio(RootParent, b.ownFilter())
		if err != nil {
			return 0, err
		}
		_, err = b.qdisc(Qdisc{Kind: KindBfifo, Parent: root | firstBand, Limit: openDepth})
		dp.ExemptClass, dp.ExemptPriority = uint16(firstBand), uint32(root|firstBand)
		return root, err
	}
	htb := Qdisc{Kind: KindHTB, Parent: RootParent, DefaultClass: uint32(htbDirect)}
	if !b.ownFilter() {
		// A priority for pfifo_fast has no major number, so what has one of
		// those goes the default way.
		htb.DefaultClass = uint32(secondBand)
	}
	root, err := b.qdisc(htb)
	if err != nil {
		return 0, err
	}
	// The TBF below is the shaper: this class only must not be one.
	open := units.MaxRate.ByteRate()
	b.params.Tree.Classes = append(b.params.Tree.Classes, Class{
		Handle: root | secondBand, Parent: root, Rate: open, Ceil: open,
		Burst: openDepth, CeilBurst: openDepth,
	})
	dp.ExemptClass, dp.ExemptPriority = uint16(htbDirect), uint32(root|htbDirect)
	return root, nil
}

// bands makes what is under the TBF. It returns the handle of the prio if it
// made one: that and no other inner qdisc takes a filter or a handle as
// skb->priority.
func (b *builder) bands(parent TCHandle) (TCHandle, error) {
	dp := &b.params.Datapath
	if b.limit.Policy != terms.PolicyStrict {
		_, err := b.qdisc(Qdisc{Kind: KindBfifo, Parent: parent, Limit: b.heavyLeaf()})
		return 0, err
	}
	if !b.facts.Prio || !b.ownFilter() {
		dp.LightPriority, dp.HeavyPriority = priorityFirst, priorityLast
		_, err := b.qdisc(Qdisc{Kind: KindPfifoFast, Parent: parent, PacketLimit: b.bandPackets()})
		return 0, err
	}
	prio, err := b.prio(parent, !b.classful())
	if err != nil {
		return 0, err
	}
	if _, err = b.qdisc(Qdisc{Kind: KindBfifo, Parent: prio | firstBand, Limit: b.lightLeaf()}); err != nil {
		return 0, err
	}
	if b.classful() {
		dp.LightPriority, dp.HeavyPriority = uint32(prio|firstBand), uint32(prio|secondBand)
	}
	_, err = b.qdisc(Qdisc{Kind: KindBfifo, Parent: prio | secondBand, Limit: b.heavyLeaf()})
	return prio, err
}

// classifyAtRoot sets what the program answers where the root of the tree
// decides who bypasses the cap: a class as our own filter, else a priority
// that is the handle of a class, or leads to the bands by the default way.
func (b *builder) classifyAtRoot(root TCHandle) error {
	p, dp := b.params, &b.params.Datapath
	if b.ownFilter() {
		dp.ExemptPriority = 0
		dp.LightClass, dp.HeavyClass = uint16(secondBand), uint16(secondBand)
		if b.limit.Policy == terms.PolicyElephants {
			dp.LightClass = dp.ExemptClass
		}
		return b.filter(root)
	}
	p.Program = ProgramBand
	dp.ExemptClass = 0
	if b.limit.Policy == terms.PolicyStrict {
		return nil
	}
	dp.LightPriority, dp.HeavyPriority = uint32(root|secondBand), uint32(root|secondBand)
	if b.limit.Policy == terms.PolicyElephants {
		dp.LightPriority = dp.ExemptPriority
	}
	return nil
}

// filter makes the program the filter of a qdisc.
func (b *builder) filter(on TCHandle) error {
	p := b.params
	p.Tree.Filter = &Filter{Parent: on, ClassID: on}
	p.Program, p.Hook, p.HookKind = ProgramClass, terms.HookOwnQdisc, terms.HookKindAuto
	p.Guard = p.Side == terms.SidePod
	return b.dropLeaf(on)
}

// qdisc appends to the tree with a handle of its own.
func (b *builder) qdisc(q Qdisc) (TCHandle, error) {
	for range maxDraws {
		major := b.majors()
		if major < minMajor || major > maxMajor || b.used[major] {
			continue
		}
		if b.used == nil {
			b.used = map[uint16]bool{}
		}
		b.used[major] = true
		q.Handle = TCHandle(major) << 16
		b.params.Tree.Qdiscs = append(b.params.Tree.Qdiscs, q)
		return q.Handle, nil
	}
	return 0, errMajors
}
