// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package queue

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// The kernel counts packet scheduler time in ticks of 64 ns
// (PSCHED_SHIFT 6, net/pkt_sched.h).
const psTickShift = 6

// Of linux/pkt_sched.h.
const (
	linkLayerEthernet = 1 // TC_LINKLAYER_ETHERNET: no rate tables are needed
	linkLayerATM      = 2 // TC_LINKLAYER_ATM: 53 bytes are charged for each 48

	htbVersion  = 3  // TC_HTB_PROTOVER
	htbR2Q      = 10 // unused: every class brings its quantum
	htbQuantum  = 60000
	prioMapSize = 16 // TC_PRIO_MAX + 1

	rateSpecLen   = 12
	classParmsLen = 2*rateSpecLen + 20
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
			c.Handle, c.Rate, c.Ceil)
	}
	b := make([]byte, classParmsLen)
	putClass(b, c)
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

// putClass writes a struct tc_htb_opt.
func putClass(b []byte, c *shaping.Class) {
	e := nl.NativeEndian()
	putRateSpec(b, c.Rate)
	putRateSpec(b[rateSpecLen:], c.Ceil)
	e.PutUint32(b[24:], toTicks(c.Burst, c.Rate))
	e.PutUint32(b[28:], toTicks(c.CeilBurst, c.Ceil))
	e.PutUint32(b[32:], htbQuantum)
	e.PutUint32(b[40:], c.Prio)
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
	return clampU32(units.MulDiv(uint64(size), nsPerSec, uint64(rate), 0) >> psTickShift)
}

// fromTicks is what fits in a time at rate. It rounds up: the kernel rounds
// the time down, so that a size comes back as it was as long as a byte takes a
// tick, and else too large by less than what a tick carries.
func fromTicks(ticks uint32, rate units.ByteRate) units.Bytes {
	return units.Bytes(units.MulDiv(uint64(ticks)<<psTickShift, uint64(rate), nsPerSec, nsPerSec-1))
}

func clampU32(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }

// message is a decoded tc message of any type.
type message struct {
	*nl.TcMsg
	kind    string
	options []byte
	hasOpts bool
	resized bool // by a size table
	chain   uint32
	blocks  judge.Blocks
	stats   Stats
}

func parseMessage(m []byte) (message, error) {
	if len(m) < nl.SizeofTcMsg {
		return message{}, fmt.Errorf("tc message of %d bytes is too short", len(m))
	}
	out := message{TcMsg: nl.DeserializeTcMsg(m)}
	var statsErr error
	err := eachAttr(m[nl.SizeofTcMsg:], func(t uint16, v []byte) {
		switch t {
		case nl.TCA_KIND:
			out.kind = unix.ByteSliceToString(v)
		case nl.TCA_OPTIONS:
			out.options, out.hasOpts = v, true
		case nl.TCA_STAB:
			out.resized = true
		case tcaChain:
			out.chain = u32at(v, 0)
		case tcaIngressBlock:
			out.blocks.Ingress = u32at(v, 0)
		case tcaEgressBlock:
			out.blocks.Egress = u32at(v, 0)
		case nl.TCA_STATS2:
			out.stats, statsErr = parseStats(v)
		}
	})
	if err = errors.Join(err, statsErr); err != nil {
		return message{}, fmt.Errorf("parse tc message: %w", err)
	}
	return out, nil
}

// Of linux/gen_stats.h.
const (
	statsBasic = 1
	statsQueue = 3
	statsPkt64 = 8
)

func parseStats(b []byte) (Stats, error) {
	var s Stats
	err := eachAttr(b, func(t uint16, v []byte) {
		switch t {
		case statsBasic:
			s.Bytes = u64(v)
			s.Packets = max(s.Packets, uint64(u32at(v, 8)))
		case statsPkt64:
			s.Packets = u64(v)
		case statsQueue:
			s.BacklogPackets, s.BacklogBytes = uint64(u32at(v, 0)), uint64(u32at(v, 4))
			s.Drops = uint64(u32at(v, 8))
		}
	})
	return s, err
}

func parseQdisc(m *message) (Qdisc, error) {
	q := Qdisc{Stats: m.stats, blocks: m.blocks}
	q.Kind = shaping.QdiscKind(m.kind)
	q.Handle, q.Parent, q.Resized = shaping.TCHandle(m.Handle), shaping.TCHandle(m.Parent), m.resized
	var err error
	switch q.Kind {
	case shaping.KindTBF:
		err = parseTBF(&q, m.options)
	case shaping.KindBfifo:
		q.Limit = units.Bytes(u32at(m.options, 0))
	case shaping.KindPrio:
		q.Bands = int(u32at(m.options, 0))
	case shaping.KindHTB:
		err = eachAttr(m.options, func(t uint16, v []byte) {
			if t == nl.TCA_HTB_INIT {
				q.DefaultClass = u32at(v, 8)
			}
		})
	case shaping.KindPfifoFast:
	}
	if err != nil {
		return q, fmt.Errorf("parse %s %s: %w", q.Kind, q.Handle, err)
	}
	return q, nil
}

func parseTBF(q *Qdisc, options []byte) error {
	ticks, segment := uint32(0), uint32(0)
	rate64, peak64 := uint64(0), uint64(0)
	err := eachAttr(options, func(t uint16, v []byte) {
		switch t {
		case nl.TCA_TBF_PARMS:
			q.Rate = units.ByteRate(u32at(v, 8))
			q.PeakRate = units.ByteRate(u32at(v, rateSpecLen+8))
			charge(&q.Extras, v)
			q.tbfLimit = units.Bytes(u32at(v, 24))
			ticks, segment = u32at(v, 28), u32at(v, 32)
		case nl.TCA_TBF_RATE64:
			rate64 = u64(v)
		case nl.TCA_TBF_PRATE64:
			peak64 = u64(v)
		}
	})
	if rate64 != 0 {
		q.Rate = units.ByteRate(rate64)
	}
	if peak64 != 0 {
		q.PeakRate = units.ByteRate(peak64)
	}
	if q.PeakRate == shaping.SegmentPeak(q.Rate) {
		q.Segment, q.PeakRate = fromTicks(segment, q.PeakRate), 0
	}
	q.Burst = fromTicks(ticks, q.Rate)
	return err
}

// charge adds what a struct tc_ratespec charges beside a packet's bytes.
func charge(x *shaping.Extras, spec []byte) {
	e := nl.NativeEndian()
	if len(spec) >= rateSpecLen {
		x.Overhead, x.MinPacket = max(x.Overhead, e.Uint16(spec[2:])), max(x.MinPacket, e.Uint16(spec[6:]))
		x.Resized = x.Resized || spec[1] == linkLayerATM
	}
}

// parseClass parses an HTB class.
func parseClass(m *message) (shaping.Class, error) {
	c := shaping.Class{Handle: shaping.TCHandle(m.Handle), Parent: shaping.TCHandle(m.Parent)}
	var ticks, ceilTicks uint32
	var rate64, ceil64 uint64
	err := eachAttr(m.options, func(t uint16, v []byte) {
		switch t {
		case nl.TCA_HTB_PARMS:
			c.Rate, c.Ceil = units.ByteRate(u32at(v, 8)), units.ByteRate(u32at(v, 20))
			ticks, ceilTicks = u32at(v, 24), u32at(v, 28)
			c.Prio = u32at(v, 40)
			charge(&c.Extras, v)
			charge(&c.Extras, v[min(rateSpecLen, len(v)):])
		case nl.TCA_HTB_RATE64:
			rate64 = u64(v)
		case nl.TCA_HTB_CEIL64:
			ceil64 = u64(v)
		}
	})
	if err != nil {
		return c, fmt.Errorf("parse class %s: %w", c.Handle, err)
	}
	if rate64 != 0 {
		c.Rate = units.ByteRate(rate64)
	}
	if ceil64 != 0 {
		c.Ceil = units.ByteRate(ceil64)
	}
	if c.Parent == shaping.RootParent {
		// That is how the kernel writes that it is under the qdisc itself.
		c.Parent = c.Handle & majorMask
	}
	c.Burst, c.CeilBurst = fromTicks(ticks, c.Rate), fromTicks(ceilTicks, c.Ceil)
	return c, nil
}

// Of linux/pkt_cls.h and linux/tc_act/tc_mirred.h.
const (
	tcaBPFOps = 5
	tcaBPFTag = 10
	tcaBPFID  = 11
)

// parseFilter returns false for the message that stands for the classifier of
// a pref as a whole: it has no handle and no options.
func parseFilter(m *message) (Filter, bool, error) {
	if m.Handle == 0 && !m.hasOpts {
		return Filter{}, false, nil
	}
	f := Filter{Parent: shaping.TCHandle(m.Parent), Protocol: bits.ReverseBytes16(uint16(m.Info))}
	f.Kind, f.FilterKind, f.Pref, f.FilterHandle = terms.HookKindClsact, m.kind, uint16(m.Info>>16), m.Handle
	f.Match = judge.AnswerEnds // without actions a match is accepted
	if m.kind != "bpf" {
		err := othersActions(&f, m.options)
		if err == nil {
			f.Answer, err = f.answer(m)
		}
		return f, true, err
	}
	var actErr error
	classic := false
	err := eachAttr(m.options, func(t uint16, v []byte) {
		switch t {
		case nl.TCA_BPF_NAME:
			f.Name = unix.ByteSliceToString(v)
		case nl.TCA_BPF_CLASSID:
			f.ClassID = shaping.TCHandle(u32at(v, 0))
		case nl.TCA_BPF_FLAGS:
			f.Direct = u32at(v, 0)&nl.TCA_BPF_FLAG_ACT_DIRECT != 0
		case tcaBPFTag:
			copy(f.Tag[:], v)
		case tcaBPFID:
			f.ProgramID = u32at(v, 0)
		case tcaBPFOps:
			classic = classicAll(v)
		case nl.TCA_BPF_ACT:
			actErr = parseActions(&f, v)
		}
	})
	if f.Protocol != unix.ETH_P_ALL || m.chain != 0 {
		f.Match = judge.AnswerUnknown // of all packets
	} else if classic {
		f.Answer = f.Match
	}
	if err == nil {
		err = actErr
	}
	if f.Cookie == mirredCookie {
		f.Name = MirredName
	}
	if err != nil {
		return f, false, fmt.Errorf("parse filter at pref %d: %w", f.Pref, err)
	}
	return f, true, nil
}

// actionsOf are the attributes with the actions of filters that others redirect with
// (TCA_U32_ACT, TCA_MATCHALL_ACT, TCA_FLOWER_ACT and TCA_BASIC_ACT of linux/pkt_cls.h).
var actionsOf = map[string]uint16{"u32": 7, "matchall": 2, "flower": 3, "basic": 3}

// othersActions reads where a filter that is no program redirects to.
func othersActions(f *Filter, options []byte) error {
	of, known := actionsOf[f.FilterKind]
	if !known {
		return nil
	}
	var inner error
	err := eachAttr(options, func(t uint16, v []byte) {
		if t == of {
			inner = parseActions(f, v)
		}
	})
	if err = errors.Join(err, inner); err != nil {
		return fmt.Errorf("parse filter at pref %d: %w", f.Pref, err)
	}
	return nil
}

// parseActions reads what becomes of a match, and the first mirred action that redirects.
func parseActions(f *Filter, b []byte) (err error) {
	if f.Match, err = matched(b); err != nil {
		return err
	}
	return eachAction(b, func(kind string, opts []byte, cookie string) error {
		if kind != "mirred" || f.RedirectIndex != 0 {
			return nil
		}
		f.Cookie = cookie
		return eachAttr(opts, func(t uint16, v []byte) {
			if does := u32at(v, 20); t == nl.TCA_MIRRED_PARMS && (does == tcaEgressRedir || does == tcaIngressRedir) {
				f.RedirectIndex = int(u32at(v, 24))
			}
		})
	})
}

func eachAttr(b []byte, f func(t uint16, v []byte)) error {
	return rtnl.EachAttr(b, func(t uint16, v []byte) error {
		f(t, v)
		return nil
	})
}

func u32at(b []byte, off int) uint32 {
	if len(b) < off+4 {
		return 0
	}
	return nl.NativeEndian().Uint32(b[off:])
}

func u64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return nl.NativeEndian().Uint64(b)
}
