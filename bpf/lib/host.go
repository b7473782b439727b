// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package lib compiles the headers of the BPF programs for the machine that tests run
// on, so that a test calls their functions with any state. It is in the headers'
// directory because Go builds a package anew only if a file beside it has changed.
package lib

/*
#cgo CFLAGS: -O2 -std=gnu11 -I${SRCDIR}/../headers -Wno-unknown-pragmas
#include "host.h"
*/
import "C"

import (
	"unsafe"

	"github.com/podweir/podweir/bpf/image"
)

// direction is one direction of a pod, whose first configuration is in use.
type direction struct{ image.Slot }

func (d *direction) slot() *C.struct_pw_slot {
	return (*C.struct_pw_slot)(unsafe.Pointer(&d.Slot))
}

func (d *direction) state() *C.struct_pw_state { return &d.slot().state }

func packetOf(p *image.Packet) *C.struct_pw_packet {
	return (*C.struct_pw_packet)(unsafe.Pointer(p))
}

func rateOf(r *image.Rate) *C.struct_pw_rate { return (*C.struct_pw_rate)(unsafe.Pointer(r)) }

// setClock says what time it is, by the coarse clock too, and how the dice fall.
func setClock(nowNS uint64, random uint32) { C.host_clock(C.__u64(nowNS), C.__u32(random)) }

// setSender says whether packets are from TCP of this node, and how much it has under way.
func setSender(local bool, out uint32) { C.host_sender(C.bool(local), C.__u32(out)) }

// Classes of a packet.
const (
	classLight = C.PW_CLASS_LIGHT
	classHeavy = C.PW_CLASS_HEAVY
)

// classify takes a packet of which the flow, the family and the traffic class are set.
func (d *direction) classify(p *image.Packet, bytes uint32) int {
	return int(C.host_classify(d.slot(), packetOf(p), C.__u32(bytes)))
}

// band is classify, and what becomes of the packet in its band.
func (d *direction) band(p *image.Packet, bytes uint32) image.Disposition {
	return image.Disposition(C.host_band(d.slot(), packetOf(p), C.__u32(bytes)))
}

type excess int

// What becomes of a heavy packet.
const (
	excessNone excess = C.PW_EXCESS_NONE
	excessDrop excess = C.PW_EXCESS_DROP
	excessMark excess = C.PW_EXCESS_MARK
)

// excess takes a packet that was classified as heavy.
func (d *direction) excess(p *image.Packet, bytes uint32) excess {
	return excess(C.host_excess(d.slot(), packetOf(p), C.__u32(bytes)))
}

// draw is the part of excess that leaves the state alone.
func (d *direction) draw(p *image.Packet, bytes uint32) excess {
	return excess(C.host_draw(d.slot(), packetOf(p), C.__u32(bytes)))
}

// wait is how long heavy packets shall wait, in 1/64 ns.
func (d *direction) wait() uint64 { return uint64(C.host_wait(d.slot())) }

// look sets what is fair in a tick, at a level of the total meter.
func (d *direction) look(level uint64, tick uint32) {
	C.host_look(d.slot(), C.__u64(level), C.__u32(tick))
}

// ceiling says whether the ceiling lets a packet pass.
func (d *direction) ceiling(bytes uint32) bool {
	return bool(C.host_ceiling(d.slot(), C.__u32(bytes)))
}

// slowdown is how much longer heavy packets wait because of light ones.
func (d *direction) slowdown(nowNS uint64) uint64 {
	return uint64(C.light_factor(&d.slot().config[0], d.state(), C.__u64(nowNS)))
}

// sketch charges a flow and returns its estimate.
func (d *direction) sketch(id uint64, tick uint32, cost uint64) uint32 {
	return uint32(C.host_sketch(d.slot(), C.__u64(id), C.__u32(tick), C.__u64(cost)))
}

// recent is sketch for the second one, of elephants' heavy flows.
func (d *direction) recent(id uint64, tick uint32, cost uint64) uint32 {
	return uint32(C.host_recent(d.slot(), C.__u64(id), C.__u32(tick), C.__u64(cost)))
}

// find looks a flow up that would be held for so long; longest is the longest hold.
func (d *direction) find(id uint64, unit, hold, longest uint32) (k image.Known) {
	C.flows_find(d.state(), C.__u64(id), C.__u32(unit), C.__u32(hold), C.__u32(longest), (*C.struct_pw_known)(unsafe.Pointer(&k)))
	return k
}

// keep writes what find found, as of a time.
func (d *direction) keep(id uint64, k image.Known, at uint32, big bool) {
	k.At = at
	heavy := C.__u32(0)
	if big {
		heavy = 1
	}
	C.flows_keep(d.state(), (*C.struct_pw_known)(unsafe.Pointer(&k)), C.__u64(id), heavy)
}

func (d *direction) noteActive(id, nowNS uint64) {
	C.active_note(d.state(), C.__u64(id), C.__u64(nowNS))
}

func (d *direction) equal() uint64 { return uint64(C.active_equal(d.state())) }

// hash is the identity of a flow.
func (d *direction) hash(f *image.Flow) uint64 {
	return uint64(C.hash_flow((*C.struct_pw_flow)(unsafe.Pointer(f)), f.Ethertype == swap(etherIPv6), &d.slot().hash_keys[0]))
}

func swap(v uint16) uint16 { return v<<8 | v>>8 }

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
)

func decay(est, since, shift uint32) uint32 {
	return uint32(C.sketch_decay(C.__u32(est), C.__u32(since), C.__u32(shift)))
}

// cost is what a meter of a rate charges for a packet.
func cost(r image.Rate, bytes uint32) uint64 {
	return uint64(C.meter_cost(rateOf(&r), C.meter_size(C.__u32(bytes))))
}

func level(tat, now uint64) uint64 { return uint64(C.meter_level(C.__u64(tat), C.__u64(now))) }

// take asks a meter.
func take(tat *uint64, r image.Rate, bytes uint32, limit uint64) bool {
	return bool(C.host_take((*C.__u64)(unsafe.Pointer(tat)), rateOf(&r), C.__u32(bytes), C.__u64(limit)))
}

// lightLimit is the level of the light-only meter up to which a flow may use it.
func lightLimit(tolerance uint64, claim, big uint32) uint64 {
	p := image.Packet{Claim: claim, BigEst: big}
	return uint64(C.classify_light_limit(C.__u64(tolerance), packetOf(&p)))
}

// Numbers of the headers.
const (
	estimateOne   = C.PW_EST_ONE
	tickShift     = C.PW_TICK_SHIFT
	tickSkew      = C.PW_TICK_SKEW
	meterShift    = C.PW_METER_SHIFT
	maxBytes      = C.PW_MAX_BYTES
	fairMost      = C.PW_EST_ONE
	fairLeast     = C.PW_EST_ONE / 256
	fairShare     = C.PW_FAIR_SHARE
	fairFlooded   = C.PW_FAIR_FLOODED
	fairPause     = C.PW_FAIR_PAUSE
	fairCutTicks  = C.PW_FAIR_CUT_TICKS
	waitOne       = C.PW_WAIT_ONE
	muchLight     = waitOne * 8 / 7
	smallBytes    = C.PW_SMALL_BYTES
	activePeriod  = 1 << C.PW_ACTIVE_PERIOD_SHIFT
	columns       = C.PW_SKETCH_COLS
	columnBits    = C.PW_SKETCH_COL_BITS
	flowColumns   = C.PW_FLOW_COLS
	flowUnitShift = C.PW_FLOW_UNIT_SHIFT
	flowTimeMask  = C.PW_FLOW_TIME_MASK
	flowAgeShift  = C.PW_FLOW_AGE_SHIFT
	flowMarkShift = C.PW_FLOW_MARK_SHIFT
	flowOld       = C.PW_FLOW_OLD
	flowKept      = C.PW_FLOW_KEPT
)
