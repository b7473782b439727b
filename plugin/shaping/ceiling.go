// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// The ceiling shall never drop what a queue lets out.
const (
	// ceilingExcess is by how much it exceeds the cap: a token bucket rounds its
	// rate, and a ceiling that is slower by a millionth would drop after a day.
	ceilingExcess units.PerMille = 20
	// ceilingDelay is what may arrive at once because a processor was busy
	// elsewhere, in time at the cap. With the burst of 10 ms and the excess, a
	// second holds at most 1.02 of the cap and 60 ms of it.
	ceilingDelay = 50 * time.Millisecond
)

// ceiling sets the meter of what leaves the pod that is out of the pod's reach: a
// process in it can send past its queue, or take the queue away.
func (b *builder) ceiling() {
	p, l := b.params, b.limit
	if p.Direction != terms.Egress || p.Side != terms.SidePod || l.NoCeiling {
		return
	}
	switch {
	case l.Policy == terms.PolicyElephants:
		b.note("no egress ceiling: under elephants light flows have no limit")
		return
	case b.facts.PastHost:
		p.leaveOwnCeiling("packets of this device may go past the host side")
		return
	}
	p.Ceiling = true
	p.Allowance.Excess = ceilingExcess
	p.Datapath.CeilingRate = meterRate(l.Rate, units.Whole+ceilingExcess)
	p.Datapath.CeilingBurst = meterTime(b.atOnce())
}

const (
	// groupExcess is by how much the ceiling of a group exceeds its limit: what divides the
	// limit lets out all of it, and looks at other counters.
	groupExcess units.PerMille = 5
	// groupBurst is what a group may send at once behind its queues, in time at its limit. Each queue
	// has a burst of dividedBucket of its share and of lightBucket of a part of it. A group that sent
	// less has share.Credit, and parked shares come on top for a tick. With groupExcess a second holds
	// at most 1.017 of the limit.
	groupBurst = 12 * time.Millisecond
)

// groupCeiling sets the meter of the group's limit behind the queue. On the way through an ifb
// no hook is behind the queue.
func (b *builder) groupCeiling() {
	p, limit := b.params, b.limit.Group
	switch {
	case !p.Divided:
		return
	case p.Direction == terms.Egress && !p.Ceiling:
		p.leaveGroupCeiling(cmp.Or(p.NoCeiling, "egressCeiling is off"))
		return
	case p.Direction == terms.Ingress && p.Side != terms.SideHost:
		p.leaveGroupCeiling("no hook is behind a queue on an ifb")
		return
	}
	p.GroupCeiling = true
	p.Datapath.InGroup, p.Datapath.Group = 1, GroupKey(b.facts.Namespace, p.Direction, limit)
	p.Datapath.GroupRate = meterRate(limit, units.Whole+groupExcess)
	p.Datapath.GroupBurst = meterTime(max(groupBurst, limit.Duration(gsoPacket)))
}

// GroupKey is the key of the pods of a namespace in a direction that have this limit, never 0:
// networks may have different defaults, and a meter of two limits would begin anew at each
// packet. Nobody finds a name whose key is that of another namespace.
func GroupKey(namespace string, d terms.Direction, limit units.BitRate) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%v\x00%d", namespace, d, limit))
	return binary.LittleEndian.Uint64(sum[:]) | 1
}

// atOnce is what may pass at once, in time at the cap.
func (b *builder) atOnce() time.Duration {
	burst := b.limit.Rate.Duration(b.params.BurstBytes) + ceilingDelay
	if b.params.Queue != terms.QueueTBF {
		// A meter admits light flows on top of heavy ones that fill the horizon.
		burst += b.limit.Horizon + b.lightTolerance()
	}
	return burst
}

// queueExcess is by how much a queue may exceed the cap over a long time, since it
// rounds its rate.
const queueExcess units.PerMille = 10

// Allowance is what a device may carry of one direction as long as its limit holds: in
// any window t at most (1 + Excess) * Rate * t + AtOnce.
type Allowance struct {
	Excess units.PerMille
	// AtOnce has the burst, what may arrive at once because a processor was busy
	// elsewhere, and one packet.
	AtOnce units.Bytes
}

// allow sets what the watch of the rate goes by.
func (b *builder) allow() {
	b.params.Allowance = Allowance{Excess: queueExcess, AtOnce: b.limit.Rate.Bytes(b.atOnce()) + gsoPacket}
}
