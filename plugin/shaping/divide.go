// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

const (
	// dividedSegment is the largest packet, in bytes, that is not cut below a share, unless the MTU is larger. At a
	// small share a packet of 64 KiB would exceed the share for long.
	dividedSegment = terms.SharePacket
	// dividedBucket is the burst of a share, in time at the share. The bursts of all pods of a
	// group come on top of its limit.
	dividedBucket = 5 * time.Millisecond
	// lightBucket is the burst of the light packets' own rate, in time at that rate. It comes on top
	// of the limit, too.
	lightBucket = time.Millisecond
	// startPart of its group's limit is what a pod has until the agent divides.
	startPart = 80
)

// Does not compile if a pod whose MTU is raised to 9,000 later had no packet that fits.
const _ = uint(dividedSegment - minBucket)

const _ = -uint(dividedSegment % SegmentUnit) // it is a multiple

// divided says that the queue has a share of a group's limit.
func (b *builder) divided() bool { return b.limit.Group != 0 && b.noShare() == "" }

// noShare says why the queue would have no share in a group, "" if it would. Packets that bypass
// the cap would bypass the share, too.
func (b *builder) noShare() string {
	switch {
	case b.params.Queue != terms.QueueTBF:
		return "it has no queue"
	case !b.facts.HTB:
		return "the kernel has no HTB"
	case b.limit.Policy == terms.PolicyElephants:
		return "light flows have no limit under elephants"
	case b.exempt:
		return "some subnets are exempt from its limit"
	}
	return ""
}

// buildDivided makes HTB with one class that holds the share, and below that one for each band.
//
// HTB lets out a packet as soon as the share has any credit, and the next one when the share has paid for
// the first: after 3 ms for 9.6 kB at 25 Mbit/s. Light packets do not wait for that: they have their own rate
// within the share. What they use is taken from the heavy packets, which have the rest of the share.
func (b *builder) buildDivided() error {
	p := b.params
	root, err := b.qdisc(Qdisc{Kind: KindHTB, Parent: RootParent, DefaultClass: uint32(secondBand)})
	if err != nil {
		return err
	}
	p.Divided = true
	p.Tree.Classes = sharesAt(b.startShare().ByteRate(), b.limit, root)
	p.Tree.Classes = append(p.Tree.Classes, Class{
		Handle: root | secondBand, Parent: root | shareBand, Rate: units.MinRate.ByteRate(), Ceil: units.MaxRate.ByteRate(),
		Burst: 1, CeilBurst: openDepth, Prio: 1,
	})
	// Under flat there is one band. Its program counts what comes, by which the agent divides.
	light := secondBand
	if b.limit.Policy != terms.PolicyFlat {
		light = firstBand
		if err := b.dividedBand(root|firstBand, b.lightLeaf()); err != nil {
			return err
		}
	}
	if err := b.dividedBand(root|secondBand, b.heavyLeaf()); err != nil {
		return err
	}
	dp := &p.Datapath
	if b.ownFilter() {
		dp.LightClass, dp.HeavyClass = uint16(light), uint16(secondBand)
		return b.filter(root)
	}
	dp.LightPriority, dp.HeavyPriority = uint32(root|light), uint32(root|secondBand)
	p.Program = ProgramBand
	return nil
}

// dividedBand makes the queue of a band. Its TBF has the pod's limit and is there to cut large packets: the share
// below that limit decides the rate.
func (b *builder) dividedBand(class TCHandle, depth units.Bytes) error {
	frame := (b.mtu() + frameOverhead + SegmentUnit - 1) / SegmentUnit * SegmentUnit // a larger one is lost, not cut
	tbf, err := b.qdisc(Qdisc{
		Kind: KindTBF, Parent: class, Rate: b.limit.Rate.ByteRate(), Burst: b.params.BurstBytes, Segment: max(dividedSegment, frame),
	})
	if err == nil {
		_, err = b.qdisc(Qdisc{Kind: KindBfifo, Parent: tbf | tbfChild, Limit: depth})
	}
	return err
}

// startShare is what a pod has until the agent divides.
func (b *builder) startShare() units.BitRate {
	return max(min(b.limit.Rate, b.limit.Group/startPart), units.MinRate)
}

// sharesAt returns the classes that change with the share, that of the share itself first. The share is in
// classes because a changed class keeps its tokens, and a changed TBF has a full bucket.
func sharesAt(rate units.ByteRate, l *Limit, root TCHandle) []Class {
	burst := rate.Bytes(dividedBucket)
	light := lightRate(rate, l.LightShare)
	all := []Class{
		{Handle: root | shareBand, Parent: root, Rate: rate, Ceil: rate, Burst: burst, CeilBurst: burst},
		{
			Handle: root | firstBand, Parent: root | shareBand, Rate: light, Ceil: units.MaxRate.ByteRate(),
			Burst: light.Bytes(lightBucket), CeilBurst: openDepth,
		},
	}
	if l.Policy == terms.PolicyFlat {
		return all[:1:1]
	}
	return all
}

// lightRate is the rate that light packets have within a share even while the share owes. It is a power of two,
// so that it seldom changes: a change takes the kernel some microseconds, and a share changes up to 50 times a
// second.
func lightRate(share units.ByteRate, part units.PerMille) units.ByteRate {
	return 1 << (bits.Len64(uint64(max(share.BitRate().Share(part).ByteRate(), 1))) - 1)
}

// measure sets the numbers of the dataplane, at the share where there is one.
func (b *builder) measure() {
	if !b.params.Divided {
		b.meters()
		return
	}
	d := Divider{limit: *b.limit, facts: b.facts, params: *b.params}
	_, b.params.Datapath = d.At(b.startShare().ByteRate())
}

// Divider computes the classes of HTB and the numbers of the dataplane that a direction has at a
// share of its group's limit. All else does not depend on the share.
type Divider struct {
	limit  Limit
	facts  Facts
	params Params
}

// NewDivider returns the divider of a direction that is divided, as [Compute] made it of the
// same configuration and facts.
func NewDivider(cfg *Config, f Facts, p *Params) *Divider {
	return &Divider{limit: *cfg.Part(p.Direction), facts: f, params: *p}
}

// At returns the classes, that of the share itself first, and the dataplane at a share in bytes per
// second. A share below [units.MinRate] counts as that.
func (d *Divider) At(share units.ByteRate) ([]Class, image.Config) {
	limit, params := d.limit, d.params
	limit.Rate = max(share.BitRate(), units.MinRate)
	classes := sharesAt(limit.Rate.ByteRate(), &limit, params.Tree.Qdiscs[0].Handle)
	b := builder{limit: &limit, facts: d.facts, params: &params}
	// What the class may send at once, and not what the TBF below it may.
	params.BurstBytes = classes[0].Burst
	params.DepthBytes = b.depth()
	b.meters()
	return classes, params.Datapath
}

// Keep gives the parameters of a direction the share that its slot has: the agent divides, and writes each share
// into the queue and then into the slot, which nothing in the pod can change. Without a share in the slot, or with
// one that is beyond the limit by now, the parameters keep the first share. The bands together have the share alone:
// each of them could send up to the limit. Light packets keep what they have within the share in the observed queue,
// if that is less: it rises some time after the share.
func (d *Divider) Keep(p *Params, slot *image.Config, observed *Tree) {
	share := SlotShare(slot)
	if share == 0 || share > d.limit.Rate.ByteRate() {
		return
	}
	classes := sharesAt(share, &d.limit, p.Tree.Qdiscs[0].Handle)
	for i := range classes[1:] {
		light := &classes[1+i]
		at := slices.IndexFunc(observed.Classes, func(c Class) bool { return c.Handle == light.Handle })
		if at >= 0 && observed.Classes[at].Rate < light.Rate {
			light.Rate = observed.Classes[at].Rate
			light.Burst = light.Rate.Bytes(lightBucket)
		}
	}
	p.Tree.Classes = append(classes, p.Tree.Classes[len(classes):]...)
	p.Datapath = atShareOf(&p.Datapath, slot)
}

// SlotShare is the rate in bytes per second that a dataplane was computed for, 0 if there is none. It is exact:
// an [image.Rate] has more digits than a rate.
func SlotShare(d *image.Config) units.ByteRate {
	return units.ByteRate(math.Round(bitsPerSecond(d.TotalRate) / 8))
}

// atShareOf returns d with all that goes by the share as it is in another one.
func atShareOf(d, other *image.Config) image.Config {
	out := *other
	out.Policy, out.Direction, out.L3Only, out.SubnetsMode = d.Policy, d.Direction, d.L3Only, d.SubnetsMode
	out.CeilingRate, out.CeilingBurst = d.CeilingRate, d.CeilingBurst
	out.InGroup, out.Group, out.GroupRate, out.GroupBurst = d.InGroup, d.Group, d.GroupRate, d.GroupBurst
	out.LightPriority, out.HeavyPriority, out.ExemptPriority = d.LightPriority, d.HeavyPriority, d.ExemptPriority
	out.LightClass, out.HeavyClass, out.ExemptClass, out.DropClass = d.LightClass, d.HeavyClass, d.ExemptClass, d.DropClass
	out.Observe = d.Observe
	return out
}
