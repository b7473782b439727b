// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"math/bits"

	"github.com/podweir/podweir/plugin/terms"
)

// The waits as in bpf/lib/exact.h, light.h and wait.h.
const (
	waitUnitShift = 14
	waitSteps     = 8
	waitUnits     = 1 << 18
	waitBuckets   = 128
	waitDiceBits  = 5
	waitLong      = 1 << 25
	waitSpread    = 0x9e3779b97f4a7c15
	waitOne       = 1 << 16
	// waitMuchLight is the factor where light packets had an eighth of the cap.
	waitMuchLight = waitOne * 8 / 7
	// waitMuchLightNS is how old it may be.
	waitMuchLightNS = 1 << 30
	waitLeastNS     = 1 << 28
	waitMostNS      = 1 << 40
	fullFrame       = 1514
)

// Waits is how long the packets of the two bands wait, light and heavy.
type Waits struct {
	NS      [2]uint64
	Packets [2][waitBuckets]uint64
	// Clock is when the first band will have sent what is in it, Frame what a packet
	// of the second band costs, both in 1/64 ns.
	Clock, Frame uint64
	// Factor is how much longer heavy packets wait for light ones, in 1/65536; Bytes
	// and SinceNS are of its last measurement.
	Factor, Bytes, SinceNS uint64
}

// waitBucket is where a wait is counted: eight buckets in every octave.
func waitBucket(ns uint64) int {
	units := min(ns>>waitUnitShift, waitUnits-1)
	octave := max(bits.Len64(units)-bits.Len(waitSteps), 0)
	return waitSteps*octave + int(units>>octave)
}

// lightSlowdown is how much longer heavy packets wait because light ones come
// meanwhile, in 1/65536.
func (d *Direction) lightSlowdown(nowNS uint64) uint64 {
	w := &d.Waits
	took := nowNS - w.SinceNS
	if int64(took) < waitLeastNS {
		return w.Factor // also where another CPU measured later
	}
	took = min(took, waitMostNS)
	kib := min((d.LightBytes-w.Bytes)>>10, MaxBytes)
	used := Cost(d.Config.TotalRate, uint32(kib)) >> meterShift << 10
	used = min(used, took-took/16)
	if d.Config.Policy != terms.PolicyStrict {
		used = 0 // light packets do not use the cap
	}
	w.SinceNS, w.Bytes, w.Factor = nowNS, d.LightBytes, took*waitOne/(took-used)
	return w.Factor
}

// noteWait counts how long a packet waits that goes into a band, when the total meter
// has been asked.
func (d *Direction) noteWait(w *work, heavy bool) {
	waits, coarse := &d.Waits, w.nowNS<<meterShift
	before, cost, clock := coarse+w.level, Cost(d.Config.TotalRate, w.bytes), waits.Clock
	if !heavy {
		waits.Clock = coarse + level(clock, coarse) + cost
	}
	dice, packets := before*waitSpread, uint64(1)
	if cost < waitLong && (w.level > 0 || !heavy) {
		if dice>>(64-waitDiceBits) != 0 {
			return
		}
		packets = 1 << waitDiceBits
	}
	now := w.clock.ExactNS << meterShift
	if int64(now+cost-d.Total.TAT) > 0 {
		d.Total.TAT = now + cost
	}
	burst := uint64(d.Config.TotalBurst)
	queue, band := level(before, now), 0
	if heavy {
		band = 1
		if waits.Frame = cost; cost > burst {
			waits.Frame = Cost(d.Config.TotalRate, fullFrame)
		}
		queue = d.follow(queue, waits.Frame, w.backlog)
		queue = (level(queue+cost, burst) >> 16) * d.lightSlowdown(w.clock.ExactNS)
	} else {
		queue = level(queue+cost, burst)
		saved := level(now, clock) % (waits.Frame | 1)
		ahead := level(clock, now) + cost
		waits.Clock = now - saved + ahead
		queue = min(level(ahead, saved), queue)
	}
	ns := queue >> meterShift
	waits.NS[band] += packets * ns
	waits.Packets[band][waitBucket(ns)] += packets
}

// As in bpf/lib/backlog.h.
const (
	backlogStepShift = 3
	backlogUnitShift = 6
)

// follow brings the total meter nearer to what the queue really holds, and returns the
// level; frame is what the queue takes of a packet at once.
func (d *Direction) follow(at, frame uint64, backlog uint32) uint64 {
	if backlog == 0 {
		return at
	}
	most := uint64(d.Config.TotalBurst) + Cost(d.Config.TotalRate, min(backlog>>backlogUnitShift, MaxBytes))<<backlogUnitShift
	least := min(level(most, frame), d.heavyLimit())
	step := level(least, at)>>backlogStepShift - level(at, most)>>backlogStepShift
	d.Total.TAT += step
	return at + step
}

// level is how far a is ahead of b.
func level(a, b uint64) uint64 { return (&Meter{TAT: a}).Level(b) }
