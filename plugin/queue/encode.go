// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/vishvananda/netlink/nl"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/units"
)

// The kernel counts packet scheduler time in ticks of 64 ns
// (PSCHED_SHIFT 6, net/pkt_sched.h).
const psTickShift = 6

// Of linux/pkt_sched.h.
const (
	linkLayerEthernet = 1 // TC_LINKLAYER_ETHERNET: no rate tables are needed

	htbVersion  = 3  // TC_HTB_PROTOVER
	htbR2Q      = 10 // unused: every class brings its quantum
	htbQuantum  = 60000
	prioMapSize = 16 // TC_PRIO_MAX + 1

	rateSpecLen   = 12
	htbDirectQLen = 1000 // packets; the driver's txqueuelen may be 0
)

const nsPerSec = 1_000_000_000

// options returns the TCA_OPTIONS of a qdisc, nil if its kind has none. limit
// belongs to a TBF.
func options(q *shaping.Qdisc, tbfLimit units.Bytes) (*nl.RtAttr, error) {
	switch q.Kind {
	case shaping.KindTBF:
		return tbfOptions(q, tbfLimit)
	case shaping.KindBfifo:
		if q.Limit == 0 || q.Limit > math.MaxUint32 {
			return nil, fmt.Errorf("bfifo limit %d bytes is outside 1 to %d", q.Limit, uint32(math.MaxUint32))
		}
		return nl.NewRtAttr(nl.TCA_OPTIONS, nl.Uint32Attr(uint32(q.Limit))), nil
	case shaping.KindPrio:
		return prioOptions(q)
	case shaping.KindHTB:
		return htbOptions(q), nil
	case shaping.KindPfifoFast, kindFQ:
		return nil, nil
	}
	return nil, fmt.Errorf("qdisc kind %q is not one that podweir makes", q.Kind)
}

// tbfOptions gives the bucket as TCA_TBF_BURST, in bytes: as ticks it does not
// fit 32 bits for large buckets at low rates.
func tbfOptions(q *shaping.Qdisc, limit units.Bytes) (*nl.RtAttr, error) {
	if q.Rate == 0 {
		return nil, fmt.Errorf("tbf rate is 0")
	}
	if q.Burst == 0 || q.Burst > math.MaxUint32 {
		return nil, fmt.Errorf("tbf burst %d bytes is outside 1 to %d", q.Burst, uint32(math.MaxUint32))
	}
	e := nl.NativeEndian()
	parms := make([]byte, 36)
	putRateSpec(parms, q.Rate)
	e.PutUint32(parms[24:], clampU32(uint64(limit)))
	e.PutUint32(parms[28:], toTicks(q.Burst, q.Rate))
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_TBF_PARMS, parms)
	o.AddRtAttr(nl.TCA_TBF_BURST, nl.Uint32Attr(uint32(q.Burst)))
	if q.Rate > math.MaxUint32 {
		o.AddRtAttr(nl.TCA_TBF_RATE64, nl.Uint64Attr(uint64(q.Rate)))
	}
	if q.Segment != 0 {
		peak := shaping.SegmentPeak(q.Rate)
		putRateSpec(parms[rateSpecLen:], peak)
		o.AddRtAttr(nl.TCA_TBF_PRATE64, nl.Uint64Attr(uint64(peak)))
		// The kernel rounds the time that it takes down to a unit.
		o.AddRtAttr(nl.TCA_TBF_PBURST, nl.Uint32Attr(clampU32(uint64(q.Segment+shaping.SegmentUnit/100))))
	}
	return o, nil
}

// prioOptions maps every priority to the second band: what no filter classifies
// is heavy.
func prioOptions(q *shaping.Qdisc) (*nl.RtAttr, error) {
	if q.Bands < 2 || q.Bands > prioMapSize {
		return nil, fmt.Errorf("prio with %d bands, outside 2 to %d", q.Bands, prioMapSize)
	}
	b := make([]byte, 4+prioMapSize)
	nl.NativeEndian().PutUint32(b, uint32(q.Bands))
	for i := range prioMapSize {
		b[4+i] = 1
	}
	return nl.NewRtAttr(nl.TCA_OPTIONS, b), nil
}

func htbOptions(q *shaping.Qdisc) *nl.RtAttr {
	e := nl.NativeEndian()
	b := make([]byte, 20)
	e.PutUint32(b, htbVersion)
	e.PutUint32(b[4:], htbR2Q)
	e.PutUint32(b[8:], q.DefaultClass)
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_HTB_INIT, b)
	o.AddRtAttr(nl.TCA_HTB_DIRECT_QLEN, nl.Uint32Attr(htbDirectQLen))
	return o
}

// classOptions returns the TCA_OPTIONS of an HTB class.
func classOptions(c *shaping.Class) (*nl.RtAttr, error) {
	if c.Rate == 0 || c.Ceil == 0 {
		return nil, fmt.Errorf("htb class %s has rate %d and ceil %d bytes/s; neither may be 0",
			handleString(c.Handle), c.Rate, c.Ceil)
	}
	e := nl.NativeEndian()
	b := make([]byte, 2*rateSpecLen+20)
	putRateSpec(b, c.Rate)
	putRateSpec(b[rateSpecLen:], c.Ceil)
	e.PutUint32(b[24:], toTicks(c.Burst, c.Rate))
	e.PutUint32(b[28:], toTicks(c.CeilBurst, c.Ceil))
	e.PutUint32(b[32:], htbQuantum)
	e.PutUint32(b[40:], c.Prio)
	o := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	o.AddRtAttr(nl.TCA_HTB_PARMS, b)
	if c.Rate > math.MaxUint32 {
		o.AddRtAttr(nl.TCA_HTB_RATE64, nl.Uint64Attr(uint64(c.Rate)))
	}
	if c.Ceil > math.MaxUint32 {
		o.AddRtAttr(nl.TCA_HTB_CEIL64, nl.Uint64Attr(uint64(c.Ceil)))
	}
	return o, nil
}

// putRateSpec writes a struct tc_ratespec. Rates from 2^32 bytes/s on need the
// 64-bit attribute beside it.
func putRateSpec(b []byte, rate units.ByteRate) {
	b[1] = linkLayerEthernet
	nl.NativeEndian().PutUint32(b[8:], clampU32(uint64(rate)))
}

// toTicks is the time that size takes at rate, in ticks; it ends at the
// largest number of 32 bits, 275 s.
func toTicks(size units.Bytes, rate units.ByteRate) uint32 {
	return clampU32(mulDiv(uint64(size), nsPerSec, uint64(rate)) >> psTickShift)
}

// fromTicks is what fits in a time at rate. It rounds up: the kernel rounds
// the time down, so that a size comes back as it was as long as a byte takes a
// tick, and else too large by less than what a tick carries.
func fromTicks(ticks uint32, rate units.ByteRate) units.Bytes {
	hi, lo := bits.Mul64(uint64(ticks)<<psTickShift, uint64(rate))
	lo, carry := bits.Add64(lo, nsPerSec-1, 0)
	q, _ := bits.Div64((hi+carry)%nsPerSec, lo, nsPerSec)
	return units.Bytes(q)
}

// mulDiv returns a*b/c, or the largest number if that does not fit.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

func clampU32(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }
