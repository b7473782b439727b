// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

const (
	// dividedSegment is the largest packet that goes to the bands whole below a share: at a
	// small share a packet of 64 KiB would be in the way of all others for long.
	dividedSegment = terms.SharePacket
	// dividedBucket is the burst of a share, in time at the share. The bursts of all pods of a
	// group come on top of its limit.
	dividedBucket = 5 * time.Millisecond
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

// shareClass makes the class of HTB that holds the share. To change its rate refills nothing;
// a TBF that is changed has a full bucket.
func (b *builder) shareClass() (TCHandle, error) {
	root, err := b.qdisc(Qdisc{Kind: KindHTB, Parent: RootParent, DefaultClass: uint32(secondBand)})
	if err != nil {
		return 0, err
	}
	b.params.Divided = true
	class := shareAt(b.startShare().ByteRate())
	class.Handle, class.Parent = root|secondBand, root
	b.params.Tree.Classes = append(b.params.Tree.Classes, class)
	return class.Handle, nil
}

// startShare is what a pod has until the agent divides.
func (b *builder) startShare() units.BitRate {
	return max(min(b.limit.Rate, b.limit.Group/startPart), units.MinRate)
}

// shareAt is what a class has at a share.
func shareAt(rate units.ByteRate) Class {
	burst := rate.Bytes(dividedBucket)
	return Class{Rate: rate, Ceil: rate, Burst: burst, CeilBurst: burst, Divided: true}
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

// Divider computes what a direction has at a share of its group's limit: the class of HTB and
// the numbers of the dataplane. All else stays as it is.
type Divider struct {
	limit  Limit
	facts  Facts
	params Params
}

// NewDivider returns the divider of a direction that is divided, as [Compute] made it of the
// same configuration and facts.
func NewDivider(cfg *Config, f Facts, p *Params) *Divider {
	return &Divider{limit: *cfg.part(p.Direction), facts: f, params: *p}
}

// Class is the handle of the class that holds the share.
func (d *Divider) Class() TCHandle { return d.params.Tree.Classes[0].Handle }

// At returns the class and the dataplane at a share, at least [units.MinRate].
func (d *Divider) At(share units.ByteRate) (Class, Datapath) {
	limit, params := d.limit, d.params
	limit.Rate = max(share.BitRate(), units.MinRate)
	class := shareAt(limit.Rate.ByteRate())
	b := builder{limit: &limit, facts: d.facts, params: &params}
	class.Handle, class.Parent = params.Tree.Classes[0].Handle, params.Tree.Classes[0].Parent
	// What the class may send at once, and not what the TBF below it may.
	params.BurstBytes = class.Burst
	params.DepthBytes = b.depth()
	b.meters()
	return class, params.Datapath
}

// AtShareOf returns d with all that goes by the share as it is in another one.
func (d *Datapath) AtShareOf(other *Datapath) Datapath {
	out := *other
	out.Policy, out.Direction, out.L3Only, out.SubnetsMode = d.Policy, d.Direction, d.L3Only, d.SubnetsMode
	out.CeilingRate, out.CeilingBurst = d.CeilingRate, d.CeilingBurst
	out.Group, out.GroupRate, out.GroupBurst = d.Group, d.GroupRate, d.GroupBurst
	out.LightPriority, out.HeavyPriority, out.ExemptPriority = d.LightPriority, d.HeavyPriority, d.ExemptPriority
	out.LightClass, out.HeavyClass, out.ExemptClass, out.DropClass = d.LightClass, d.HeavyClass, d.ExemptClass, d.DropClass
	out.Observe = d.Observe
	return out
}
