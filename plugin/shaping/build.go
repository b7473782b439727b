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
	// htbDirect is answered for HTB's direct queue, which has no shaper.
	htbDirect TCHandle = 0
	// The classes of the queue htb.
	htbCap   TCHandle = 1
	htbLight TCHandle = 2
	htbHeavy TCHandle = 3
	htbDrop  TCHandle = 4
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
	switch p.Queue {
	case terms.QueueNone:
		p.Program = ProgramPolice
		return nil
	case terms.QueueFQ:
		p.Tree = &Tree{}
		p.Program = ProgramEDT
		_, err := b.qdisc(Qdisc{
			Kind: KindFQ, Parent: RootParent, HorizonMicros: fqHorizonMicros,
			PacketLimit: b.fqLimit(), FlowLimit: b.fqLimit(),
		})
		return err
	case terms.QueueHTB:
		p.Tree = &Tree{}
		return b.buildHTB()
	default:
		p.Tree = &Tree{}
		return b.buildTBF()
	}
}

// fqLimit is so many packets that the clock drops before fq does.
func (b *builder) fqLimit() uint32 {
	all := b.params.DepthBytes + b.params.BurstBytes
	return uint32(min(max(fqPackets, all/smallestFrame), kernelLimit))
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
	tbf, err := b.qdisc(Qdisc{
		Kind: KindTBF, Parent: parent, Rate: b.limit.Rate.ByteRate(), Burst: p.BurstBytes,
	})
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

// buildHTB makes the two-class HTB.
func (b *builder) buildHTB() error {
	p, dp, rate := b.params, &b.params.Datapath, b.limit.Rate
	strict := b.limit.Policy == terms.PolicyStrict
	root, err := b.qdisc(Qdisc{Kind: KindHTB, Parent: RootParent, DefaultClass: uint32(htbHeavy)})
	if err != nil {
		return err
	}
	// The bursts of classes that lend and borrow add up.
	half, quarter := p.BurstBytes/2, max(p.BurstBytes/4, b.mtu()+frameOverhead)
	byteRate := rate.ByteRate()
	heavy := Class{
		Handle: root | htbHeavy, Parent: root, Rate: byteRate, Ceil: byteRate,
		Burst: p.BurstBytes, CeilBurst: p.BurstBytes,
	}
	if strict {
		top := Class{Handle: root | htbCap, Parent: root, Rate: byteRate, Ceil: byteRate, Burst: half, CeilBurst: half}
		light := Class{
			Handle: root | htbLight, Parent: top.Handle, Rate: rate.Share(b.limit.LightShare).ByteRate(),
			Ceil: byteRate, Burst: quarter, CeilBurst: half,
		}
		heavy.Parent, heavy.Rate, heavy.Prio = top.Handle, b.leftover().ByteRate(), 1
		heavy.Burst, heavy.CeilBurst = quarter, half
		p.Tree.Classes = append(p.Tree.Classes, top, light)
		if _, err = b.qdisc(Qdisc{Kind: KindBfifo, Parent: light.Handle, Limit: b.lightLeaf()}); err != nil {
			return err
		}
	}
	p.Tree.Classes = append(p.Tree.Classes, heavy)
	if _, err = b.qdisc(Qdisc{Kind: KindBfifo, Parent: heavy.Handle, Limit: b.heavyLeaf()}); err != nil {
		return err
	}
	if b.limit.Policy == terms.PolicyFlat && !b.exempt {
		p.Hook, p.HookKind = terms.HookNone, terms.HookKindAuto
		return nil
	}
	dp.ExemptClass, dp.HeavyClass = uint16(htbDirect), uint16(htbHeavy)
	dp.LightClass = map[terms.Policy]uint16{
		terms.PolicyStrict: uint16(htbLight), terms.PolicyElephants: uint16(htbDirect), terms.PolicyFlat: uint16(htbHeavy),
	}[b.limit.Policy]
	return b.filter(root)
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
