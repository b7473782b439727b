// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping

import (
	"math"
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// docs/reference/configuration.md has these sizes as users see them.
const (
	ethernetHeader units.Bytes = 14
	// frameOverhead is an Ethernet header and one VLAN tag: TBF drops what is
	// larger than its bucket and not GSO.
	frameOverhead units.Bytes = 18
	// minBucket keeps a pod alive whose MTU is raised to 9,000 later.
	minBucket units.Bytes = 9_100
	// A GSO packet of 64 KiB passes a bucket of gsoBucket without being
	// segmented; from gsoRate up 10 ms of the cap are about as much.
	gsoBucket units.Bytes   = 66_000
	gsoRate   units.BitRate = 54_000_000
	// gsoPacket is a GSO packet of 64 KiB with a header for each segment.
	gsoPacket units.Bytes = 69_000
	minDepth  units.Bytes = 30_000
	minLight  units.Bytes = 200_000
	// A heavy band with fair shares has room for bursts: BBR sends some 200 kB
	// before it knows how fast it may be. Where that is a long time, for so long.
	fairDepth    units.Bytes = 250_000
	maxFairDepth             = 200 * time.Millisecond
	// The queue that heavy packets wait in: fairQueue of the limit, within the Fair bytes
	// below; a packet waits for that queue, and for fairWait at least.
	// TCP keeps it at some three quarters full. At 100 Mbit/s its size decides what one
	// flow sends again: 0.3 % of the segments with 250 kB, 0.5 % with 200 kB and 0.7 %
	// with 125 kB (measured); 0.5 % is promised.
	//
	// Out of a pod TCP sends nothing again, so the queue is at most maxToldBytes; where its
	// packets are small, three quarters of that and of the time: with half, one flow at
	// 100 Mbit/s used 0.94 to 0.96 of it, and with all, few flows are less fair (measured).
	//
	// Light packets go first, so heavy ones may wait this long. Beyond 200 ms, Linux's
	// shortest retransmission timeout, a new TCP connection sends its segments again.
	// Where TCP bulk loses more, the programs make the wait longer.
	fairWait                 = 10 * time.Millisecond
	fairQueue                = 75 * time.Millisecond
	minFairBytes units.Bytes = 30_000
	maxFairBytes units.Bytes = 250_000
	maxToldBytes units.Bytes = 125_000
	// How much of every active flow there shall be: eight packets, with which TCP
	// still notices a lost one by those behind it.
	fairEach units.Bytes = 12_000
	// openDepth is the depth of a band without a shaper. It drains at the
	// speed of the device, so that this is never reached.
	openDepth units.Bytes = 4_000_000
	// maxBurstDepth is how much of the depth can be due to a burst, in time at
	// the cap.
	maxBurstDepth = time.Second
	// minCredit is the least credit of a policer: below it one TCP flow gets
	// credit / 200 ms instead of the cap.
	minCredit = 250 * time.Millisecond
	// strictHold is how long a flow stays heavy under strict after it had its share.
	// Shorter, and bulk flows alternate between a queue of 0.2 ms and one of 100 ms:
	// 15 to 57 % of their segments were sent again (measured).
	strictHold = time.Second
	// leastInSketch is how much a flow that has the cap has in the sketch at least,
	// so that one packet is not taken for a rate: the half-life is longer at low
	// rates.
	leastInSketch units.Bytes = 12_000
	// A flow is light up to a fair share of so many flows in any case, and beyond
	// this part of the cap in none.
	fairFlows     = 64
	lightMostPart = 4
	// fullFrame is an Ethernet frame of MTU 1500 in bytes.
	fullFrame units.Bytes = 1_514
	// lightPackets is room in a band for what is not a full frame.
	lightPackets units.Bytes = 90
	// maxBandPackets keeps the bands of both directions at 24 KiB. A thousand
	// packets, a veth's txqueuelen, took 48 KiB and a pod at 100 Mbit/s beyond
	// its 128 KiB (measured).
	maxBandPackets = 512
	// defaultBucket is the bucket behind the default burst. What leaves it
	// evenly arrives less so: with a bucket of 10 ms the receiver's worst second
	// was 1.0099 of the cap, and 1.0108 on a busy machine.
	defaultBucket = 8 * time.Millisecond
	// LongestBucket is the time that a bucket can take to fill: the kernel tells of it
	// in 32 bits of 64 ns (net/sched/sch_tbf.c, tbf_dump), 274.8 s. A larger bucket
	// works, and reads back as another one: one packet of the MTU takes longer below 2 kbit/s.
	LongestBucket = 274 * time.Second
	// kernelLimit is the largest u32, which bounds every size of a qdisc.
	kernelLimit units.Bytes = math.MaxUint32
)

// size sets burst, depth and the longest wait.
func (b *builder) size() {
	p := b.params
	p.BurstBytes = b.burst()
	if p.Queue == terms.QueueNone {
		return
	}
	p.DepthBytes = b.depth()
	p.MaxWait = b.leftover().Duration(p.DepthBytes)
}

// depth of the heavy band: twice the bucket, so that a burst fits. A runtime may send a
// burst of minutes; that does not ask for a queue of minutes, so the bucket counts up to
// maxBurstDepth. One packet fits in any case.
func (b *builder) depth() units.Bytes {
	rate := b.limit.Rate
	twice := min(2*b.params.BurstBytes, max(rate.Bytes(maxBurstDepth), 2*minBucket))
	return min(max(rate.Bytes(b.limit.Horizon), twice, minDepth, b.mtu()+frameOverhead, b.fairDepth()), kernelLimit)
}

// fair says that the program bounds the heavy band and shares it between flows.
func (b *builder) fair() bool {
	return b.drops() && b.params.Queue == terms.QueueTBF
}

// fairDepth is the least depth of a band with fair shares. Under elephants some flows
// that wait there have less than their share, and have no band of their own to go
// first in: they shall not wait longer than in a plain queue.
func (b *builder) fairDepth() units.Bytes {
	if !b.fair() || b.limit.Policy != terms.PolicyStrict {
		return 0
	}
	return min(fairDepth, b.limit.Rate.Bytes(maxFairDepth))
}

// heavyLeaf is the depth of the second band. Where the program bounds it, a packet
// comes in as long as there is room for a byte, and that may be a large one. Behind it
// there shall be room for flows that have no more than their share, which under
// elephants are not all light.
func (b *builder) heavyLeaf() units.Bytes {
	room := b.params.DepthBytes
	if b.fair() {
		room += gsoPacket
		if b.limit.Policy == terms.PolicyElephants {
			room += gsoPacket
		}
	}
	return min(room, kernelLimit)
}

// leftover is what heavy flows get while light ones take all they may.
func (b *builder) leftover() units.BitRate {
	if b.limit.Policy != terms.PolicyStrict {
		return b.limit.Rate
	}
	return b.limit.Rate.Share(units.Whole - b.limit.LightShare)
}

// burst is the bucket of a TBF, the credit of a policer.
func (b *builder) burst() units.Bytes {
	rate, asked := b.limit.Rate, b.limit.Burst
	size := asked
	if size == 0 {
		size = rate.Bytes(defaultBucket)
	}
	frame := b.mtu() + frameOverhead
	if b.params.Queue == terms.QueueNone {
		return max(size, rate.Bytes(minCredit), frame)
	}
	size = min(size, b.longestBurst())
	// TBF lets a packet pass on top of its bucket's average: the bucket and
	// one packet are the burst.
	header := ethernetHeader
	if b.facts.L3Only {
		header = 0
	}
	size -= min(size, b.mtu()+header)
	least := max(frame, minBucket)
	if asked == 0 && rate >= gsoRate {
		least = max(least, gsoBucket)
	}
	return max(size, least)
}

// longestBurst is the largest burst that a TBF can have.
func (b *builder) longestBurst() units.Bytes { return b.limit.Rate.Bytes(LongestBucket) }

func (b *builder) mtu() units.Bytes {
	return units.Bytes(max(b.facts.MTU, 0))
}

// lightLeaf is the depth of the first band: room for what the light-only meter
// lets in at once.
func (b *builder) lightLeaf() units.Bytes {
	return min(max(minLight, b.limit.Rate.Bytes(b.lightTolerance())), kernelLimit)
}

// lightTolerance is how far light flows may run ahead of their share. Under a
// shaper it costs nothing but a turn of the heavy ones, and a burst after a
// processor was busy elsewhere must not move small flows: twice the horizon.
// Where the meter is the cap it would be exceeded by as much.
func (b *builder) lightTolerance() time.Duration {
	tolerance := b.limit.Horizon
	if b.params.Queue == terms.QueueTBF {
		tolerance *= 2
	}
	return max(tolerance, b.limit.Rate.Duration(minDepth))
}

// bandPackets is the length of each band of a pfifo_fast, whose memory it is:
// 24 bytes a packet for the three of them. The depth in full frames and some
// for light flows, as powers of two, since that is how the kernel allocates.
func (b *builder) bandPackets() uint32 {
	want := b.params.DepthBytes/fullFrame + lightPackets
	if want <= maxBandPackets/2 {
		return maxBandPackets / 2
	}
	return maxBandPackets
}

// OwnBandPackets says that a txqueuelen in packets is one that podweir gives a device for
// the bands of a pfifo_fast.
func OwnBandPackets(packets int) bool {
	return packets == maxBandPackets || packets == maxBandPackets/2
}

// meters sets the numbers of the dataplane.
func (b *builder) meters() {
	p, l := b.params, b.limit
	dp := &p.Datapath
	dp.LightRate = meterRate(l.Rate, l.LightShare)
	dp.LightTolerance = meterTime(b.lightTolerance())
	dp.TotalRate = meterRate(l.Rate, units.Whole)
	dp.TotalBurst = meterTime(b.burstTime())
	dp.TotalHorizon = meterTime(l.Horizon)
	if b.fair() {
		dp.TotalHorizon = meterTime(l.Rate.Duration(p.DepthBytes))
		p.MaxWait = b.leftover().Duration(b.heavyLeaf())
	}
	if b.drops() {
		b.shares()
	}
	if l.Policy == terms.PolicyStrict {
		dp.SketchRate, dp.HalfLifeShift = dp.FairRate, dp.FairHalfLifeShift
		dp.LightLeast, dp.LightMost = estimateOne/fairFlows, estimateOne/lightMostPart
		dp.FrameEst = dp.FairFrameEst
		dp.HoldTicks = holdTicks(strictHold)
		return
	}
	dp.SketchRate = sketchRate(l.Rate, l.HeavyThreshold, longestHalfLife)
	dp.HalfLifeShift = longestHalfLife
	// A flow is held from here on, and becomes heavy a quarter above it.
	dp.LightLeast = estimateOne / 5 * 4
	dp.LightMost = dp.LightLeast
	// Where nothing waits a flow still stays heavy as if it did: flapping
	// would let it out of the meter that holds it.
	hold := p.MaxWait
	if p.Queue == terms.QueueNone {
		hold = b.leftover().Duration(l.Rate.Bytes(l.Horizon))
	}
	dp.HoldTicks = holdTicks(hold)
}

// shares sets what is fair between heavy flows: an estimate is a part of the cap.
func (b *builder) shares() {
	rate, dp := b.limit.Rate, &b.params.Datapath
	dp.FairHalfLifeShift = shortestHalfLife
	for dp.FairHalfLifeShift < longestHalfLife && rate.Bytes(meanLife(dp.FairHalfLifeShift)) < leastInSketch {
		dp.FairHalfLifeShift++
	}
	dp.FairRate = sketchRate(rate, units.Whole, dp.FairHalfLifeShift)
	dp.FairFrameEst = cost(dp.FairRate, b.mtu()+ethernetHeader)
	dp.FairMost = dp.TotalHorizon - dp.TotalHorizon/8
	wait, most := fairWait, maxFairBytes
	if b.params.Direction == terms.Egress {
		most = maxToldBytes
	}
	if b.params.OffloadBytes != 0 || b.params.Paced {
		wait, most = wait*3/4, most*3/4
	}
	queue := min(max(rate.Bytes(fairQueue), minFairBytes), most)
	dp.FairLeast = min(meterTime(max(wait, rate.Duration(queue))), dp.FairMost)
	each := fairEach
	switch {
	case b.params.Paced:
		each = pacedTold
		dp.FairSpare = meterTime(rate.Duration(pacedSpare))
	case b.params.OffloadBytes != 0:
		each = min(2*b.params.OffloadBytes, fairEach)
	}
	dp.FairEach = meterTime(rate.Duration(each))
}

// burstTime is the burst in time at the cap. Where the meter itself is the
// cap, what its clock may be behind is taken off: after idle that much more
// would pass.
func (b *builder) burstTime() time.Duration {
	burst := b.limit.Rate.Duration(b.params.BurstBytes)
	if b.params.Program == ProgramPolice {
		burst -= min(b.facts.ClockTick, burst/2)
	}
	return burst
}

// holdTicks is d in ticks, rounded up, and two more: one because the packet
// that starts the hold may come at the end of its tick, one for the packet
// that the device is sending.
func holdTicks(d time.Duration) uint32 {
	ticks := (int64(d) + int64(tick) - 1) / int64(tick)
	return uint32(min(ticks+2, math.MaxInt32))
}

// explain adds the notes that status shows.
func (b *builder) explain() {
	p, l := b.params, b.limit
	if p.Side == terms.SideHost && b.facts.PastHost {
		p.CapHolds = false
		b.note("on the host side, which packets of this device may go past: those are not shaped")
	}
	switch {
	case p.Queue == terms.QueueNone:
		p.CapHolds = false
		b.note("policing: the burst is a credit of %v, so the cap does not hold within 1 %% of any second",
			p.BurstBytes)
	case l.Burst > b.longestBurst():
		b.note("burst %v instead of %v: the kernel keeps a bucket of at most %v of the cap", p.BurstBytes, l.Burst, LongestBucket)
	case l.Burst != 0 && p.BurstBytes > l.Burst:
		b.note("burst %v instead of %v: the least for an MTU of %d", p.BurstBytes, l.Burst, b.facts.MTU)
	case l.Burst == 0 && p.BurstBytes+b.mtu() > l.Rate.Bytes(2*DefaultBurst):
		b.note("burst %v, %v of the cap: the least for an MTU of up to %d", p.BurstBytes,
			l.Rate.Duration(p.BurstBytes).Round(time.Millisecond), p.BurstBytes-frameOverhead)
	}
	if p.Tree == nil || p.Tree.Qdiscs[len(p.Tree.Qdiscs)-1].Kind != KindPfifoFast {
		return
	}
	if b.fair() {
		b.note("pfifo_fast counts packets, not bytes: a meter limits the bytes that wait, and each band holds %d packets",
			b.bandPackets())
	} else {
		b.note("pfifo_fast counts packets, not bytes: the queue holds %d packets", b.bandPackets())
	}
}
