// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

//go:build cgo

package lib

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// floodOf are packets of new flows, so many of each, at a multiple of the cap.
type floodOf struct {
	bits, overload float64
	bytes          uint32
	packets        int
}

func (f floodOf) String() string {
	return fmt.Sprintf("%g times %.0e bit/s in packets of %d B, %d of each flow", f.overload, f.bits, f.bytes, f.packets)
}

func strictAt(bits float64) *direction {
	const shift = 5
	d := withKeys(uint64(bits))
	d.Config[0] = image.Config{
		Policy: uint8(terms.PolicyStrict), Direction: uint8(terms.Egress),
		LightRate:      fixedRate(8e9 * 64 / (0.9 * bits)),
		LightTolerance: uint64(100*time.Millisecond) << meterShift,
		TotalRate:      fixedRate(8e9 * 64 / bits),
		TotalBurst:     uint64(10*time.Millisecond) << meterShift,
		TotalHorizon:   uint64(200*time.Millisecond) << meterShift,
		SketchRate:     fixedRate(estimateOne / (bits / 8 * (1 << (shift + tickShift)) / 1e9 / math.Ln2)),
		HalfLifeShift:  shift,
		LightLeast:     estimateOne / 64,
		LightMost:      estimateOne / 4,
		HoldTicks:      956,
	}
	c := &d.Config[0]
	c.FrameEst = uint32(cost(c.SketchRate, 1514))
	c.FairRate, c.FairHalfLifeShift, c.FairFrameEst = c.SketchRate, c.HalfLifeShift, c.FrameEst
	c.FairMost = c.TotalHorizon - c.TotalHorizon/8
	c.FairLeast, c.FairEach = c.FairMost/2, c.FairMost/16
	setSender(false, 0)
	return d
}

// fixedRate is a cost per byte with as many bits as there are.
func fixedRate(cost float64) image.Rate {
	shift := uint32(0)
	for ; cost < 1<<42; shift++ {
		cost *= 2
	}
	return image.Rate{Mult: uint64(cost), Shift: shift}
}

// since is a time in seconds, for a packet, in ns.
func since(at float64) uint64 { return uint64((1000 + at) * 1e9) }

// send classifies a packet at a time in seconds.
func (d *direction) send(at float64, f *image.Flow, bytes uint32) int {
	setClock(since(at), 0)
	return d.classify(&image.Packet{Family: 4, Flow: *f}, bytes)
}

// queue sends a packet into the bands, so that what waits says what is fair, and says
// whether it is heavy.
func (d *direction) queue(at float64, f *image.Flow, bytes, random uint32) (heavy bool) {
	setClock(since(at), random)
	return d.band(&image.Packet{Family: 4, Flow: *f}, bytes) != image.Light
}

// flooded runs a connection of two packets every pause that begins at start beside
// a flood that begins after one second, and returns the share of its packets after
// count that were heavy. All times are in seconds.
func (f floodOf) flooded(d *direction, pause, start, count, end float64) (heavy float64) {
	kept := flowFrom(protoTCP, 40000, 443)
	next, flooding, all, moved, i := start, 1.0, 0, 0, 0
	random := rand.New(rand.NewPCG(3, 4))
	for {
		if next > end && flooding > end {
			return float64(moved) / float64(all)
		}
		if next < flooding {
			for _, bytes := range []uint32{130, 66} {
				heavy := d.queue(next, &kept, bytes, random.Uint32())
				if next < count {
					continue
				}
				all++
				if heavy {
					moved++
				}
			}
			next += pause
			continue
		}
		from := i / f.packets
		other := flowFrom(protoUDP, uint16(from), uint16(from>>16))
		d.queue(flooding, &other, f.bytes, random.Uint32())
		i++
		flooding += float64(f.bytes) * 8 / (f.bits * f.overload)
	}
}

var newFlowFloods = []floodOf{
	{10e6, 2, 1538, 1},
	{10e6, 10, 1538, 1},
	{10e6, 2, 110, 1},
	{100e6, 2, 1538, 1},
	{100e6, 2, 110, 1},
	{1e9, 2, 1538, 1},
	{10e6, 40, 1538, 1},
	{10e6, 100, 1538, 1},
	// Beyond these the cells of the sketch hold too much of others.
	{10e6, 20, 1538, 2},
	{10e6, 5, 1538, 3},
}

// A flood of new flows moves nothing of a connection that was there before.
func TestFloodLeavesEstablishedFlowsLight(t *testing.T) {
	for _, f := range newFlowFloods {
		t.Run(f.String(), func(t *testing.T) {
			must.AtMost(t, "the connection's packets that are heavy", 0, f.flooded(strictAt(f.bits), 0.005, 0, 0, 4))
		})
	}
}

// And a connection that comes up beside it is soon established, unless that
// is of very many packets: 160,000 a second leave no place for long enough.
// A flood of packets as small as its own may move it once, for one hold; if it has
// more than the least share, for as long as the flood lasts.
func TestConnectionsComeUpBesideAFlood(t *testing.T) {
	for _, f := range newFlowFloods {
		if f.bits*f.overload/8/float64(f.bytes) > 100_000 {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			d, start, pause := strictAt(f.bits), 2.0, 0.005
			count := start
			if f.bytes <= smallBytes {
				pause = 0.0125 // 1.3 % of 10 Mbit/s
				count += float64(d.Config[0].HoldTicks) * (1 << tickShift) / 1e9
			}
			must.AtMost(t, "the connection's packets that are heavy", 0.005, f.flooded(d, pause, start, count+0.02, start+4))
		})
	}
}

// Whoever sends bulk beside such a flood is found out: from its second packet on the sketch
// counts it.
func TestBulkIsHeavyBesideAFlood(t *testing.T) {
	const bits, bytes = 10e6, 1514
	for _, overload := range []float64{2, 40, 100} {
		d, random := strictAt(bits), rand.New(rand.NewPCG(5, 6))
		bulk := flowFrom(protoUDP, 40000, 443)
		heavy, all, next, i := 0, 0, 0.5, 0
		for at := 0.0; at < 2; at += bytes * 8 / (bits * overload) {
			other := flowFrom(protoUDP, uint16(i), uint16(i>>16))
			d.queue(at, &other, bytes, random.Uint32())
			i++
			if at < next {
				continue
			}
			next += bytes * 8 / bits
			is := d.queue(at, &bulk, bytes, random.Uint32())
			if at < 0.6 {
				continue
			}
			all++
			if is {
				heavy++
			}
		}
		must.AtLeast(t, fmt.Sprintf("packets of a bulk flow that are heavy beside %g times the cap", overload), all*99/100, heavy)
	}
}

// Nor is a flow left uncounted for which the table has no place.
func TestBulkWithoutAPlaceIsHeavy(t *testing.T) {
	const bits, bytes = 10e6, 1514
	d := strictAt(bits)
	bulk := flowFrom(protoUDP, 40000, 443)
	heavy := 0
	for i := range 100 {
		at := float64(i) * bytes * 8 / bits
		unit := uint32(since(at)>>tickShift) >> flowUnitShift
		for row := range d.State.Flows {
			for column := range d.State.Flows[row] {
				// Established, held, and of others.
				d.State.Flows[row][column] = (uint32(d.hash(&bulk))>>flowMarkShift^1)<<flowMarkShift | flowOld<<flowAgeShift | (unit+1)&flowTimeMask
			}
		}
		if d.queue(at, &bulk, bytes, 0) {
			heavy++
		}
	}
	must.AtLeast(t, "of 100 packets of a bulk flow without a place are heavy", 80, heavy)
}

// Two hundred equal flows and nothing else. While the queue is short none of their packets
// goes to the second band, though together they take more than lightShare. Beyond the
// cap the excess waits there.
func TestLightFlowsOfTheWholeCap(t *testing.T) {
	const bits, flows, bytes = 10e6, 200, 200
	for _, tt := range []struct {
		offered, least, most float64
	}{
		{1, 0, 0},
		{1.2, 0.1, 0.9},
	} {
		d := strictAt(bits)
		random := rand.New(rand.NewPCG(1, 2))
		all, heavy := 0, 0
		for at := 0.0; at < 6; at += bytes * 8 / bits / tt.offered {
			f := flowFrom(protoUDP, uint16(20000+all%flows), 5004)
			all++
			if d.queue(at, &f, bytes, random.Uint32()) {
				heavy++
			}
		}
		must.Within(t, fmt.Sprintf("%g times the cap in light flows: packets that waited in the second band", tt.offered), tt.least, tt.most, float64(heavy)/float64(all))
	}
}

// Where an eighth of the cap is fair, a flow that sends at once is light up to 5/4 of that. A new
// flow beside much that is light is light up to half of that, until a second has passed.
func TestNewFlowIsLightUpToHalf(t *testing.T) {
	const bits, bytes, at = 100e6, 1514, 0.1
	for _, tt := range []struct {
		name string
		// before is when the flow sent a small packet.
		before []float64
		factor uint64
		// age is the factor's, in ns.
		age  int64
		want float64
	}{
		{"new", nil, muchLight, 0, 5. / 32},
		{"new, beside much that is light", nil, muchLight + 1, 0, 5. / 64},
		{"measured by a processor whose clock is ahead", nil, muchLight + 1, -4e6, 5. / 64},
		{"measured a second ago", nil, muchLight + 1, 1e9, 5. / 64},
		{"measured long ago", nil, muchLight + 1, 1.1e9, 5. / 32},
		{"measured very long ago", nil, muchLight + 1, 3600e9, 5. / 32},
		{"established, beside much that is light", []float64{0, 0.02, 0.04, 0.06, 0.08}, muchLight + 1, 0, 5. / 32},
	} {
		d := strictAt(bits)
		f := flowFrom(protoTCP, 80, 40000)
		for _, before := range tt.before {
			d.send(before, &f, 66)
		}
		now := since(at)
		d.State.WaitFactor, d.State.WaitSince = tt.factor, now-uint64(tt.age)
		d.setFair(estimateOne/8, tick(now))
		for i := range 8 {
			d.noteActive(uint64(i)<<58, now)
		}
		frames := 0
		for d.send(at, &f, bytes) == classLight {
			frames++
		}
		frame := float64(d.Config[0].FrameEst) / estimateOne
		// One frame is overlooked, and the first of a new flow does not count.
		must.Within(t, tt.name+": frames that are light", tt.want/frame-0.5, tt.want/frame+2.5, float64(frames))
	}
}

// Flows do not take the reserve of each other: all light flows together stay
// within lightShare whoever is established.
func TestReserveIsWithinLightShare(t *testing.T) {
	const bits, flows, bytes, seconds = 10e6, 128, 1000, 8.0
	d, random := strictAt(bits), rand.New(rand.NewPCG(1, 2))
	light, packets := 0.0, 0
	// Two percent of the cap each, 256 % altogether.
	gap := bytes * 8 / (2.56 * bits)
	for at := 0.0; at < seconds; at += gap {
		f := flowFrom(protoUDP, uint16(packets%flows), 0)
		if !d.queue(at, &f, bytes, random.Uint32()) {
			light += bytes * 8
		}
		packets++
	}
	// A tolerance of 100 ms, and an eighth of it for the reserve. Before, what makes the queue
	// more than short: a burst of 10 ms and a 64th of the tolerance.
	must.AtMost(t, fmt.Sprintf("bits that passed as light in %v s", seconds), 0.9*bits*(seconds+0.1125+0.0116+0.002), light)
	must.AtLeast(t, fmt.Sprintf("bits that passed as light in %v s", seconds), 0.6*bits*seconds, light)
}

// Holds of other flows do not hold a flow, however many there are.
func TestHoldsAreNotShared(t *testing.T) {
	const unit, hold, flows = 1000, 128, 20_000
	table := withKeys(7)
	id := func(i int) uint64 {
		f := flowOf(i)
		return table.hash(&f)
	}
	for i := range flows {
		table.keep(id(i), table.find(id(i), unit, hold, hold), unit+hold, true)
	}
	held := 0
	for i := flows; i < 2*flows; i++ {
		if table.find(id(i), unit, hold, hold).Held != 0 {
			held++
		}
	}
	// Two places with a mark of twelve bits each: 0.05 %.
	must.AtMost(t, fmt.Sprintf("of %d flows that sent nothing are held", flows), flows/500, held)
	last := id(flows - 1)
	if k := table.find(last, unit, hold, hold); k.Held == 0 {
		t.Error("the flow that was held last is not held")
	}
	if k := table.find(last, unit+hold, hold, hold); k.Held != 0 {
		t.Error("the flow is still held at the end of its hold")
	}
}

// An established flow keeps its place for as long as it is remembered, and
// then gives it up; also where the times of the table wrap.
func TestEstablishedFlowsKeepTheirPlace(t *testing.T) {
	const hold = 128
	first := flowFrom(0, 1, 0)
	for _, begin := range []uint32{1000, flowTimeMask - 2, 1<<32>>flowUnitShift - 2} {
		table, unit := withKeys(9), begin
		own := table.hash(&first)
		for range flowOld + 1 {
			table.keep(own, table.find(own, unit, hold, hold), unit, false)
			unit++
		}
		if k := table.find(own, unit, hold, hold); k.Found == 0 || k.Age != flowOld {
			t.Fatalf("after %d packets in as many units from %d on: found %d, age %d", flowOld+1, begin, k.Found, k.Age)
		}
		// Everybody else is established too, so that new flows find no other place.
		for row := range table.State.Flows {
			for column, word := range table.State.Flows[row] {
				if word == 0 {
					table.State.Flows[row][column] = flowOld<<flowAgeShift | unit&flowTimeMask
				}
			}
		}
		for i := range 100_000 {
			f := flowOf(i)
			other := table.hash(&f)
			table.keep(other, table.find(other, unit, hold, hold), unit+hold, false)
		}
		if k := table.find(own, unit+flowKept-2, hold, hold); k.Found == 0 {
			t.Errorf("an established flow of unit %d lost its place to new ones", begin)
		}
		must.Be(t, fmt.Sprintf("a flow of unit %d found after %d units", begin, flowKept), 0, table.find(own, unit+flowKept, hold, hold).Found)
	}
}

// A bulk flow that is moved is not let back while what it sent waits, wherever
// its sender stalls and catches up.
func TestABulkFlowThatStallsStaysHeld(t *testing.T) {
	const bits, bytes, lasts = 15e6, 1042, 0.15
	f := flowFrom(protoUDP, 40000, 443)
	for stall := 0.0; stall < 0.04; stall += 0.001 {
		for length := 0.0; length < 0.1; length += 0.002 {
			d := strictAt(10e6)
			hold, moved := float64(d.Config[0].HoldTicks)*(1<<tickShift)/1e9, -1.0
			for due := 0.0; due < lasts; due += bytes * 8 / bits {
				at := due
				if at > stall {
					at = max(due, stall+length)
				}
				class := d.send(at, &f, bytes)
				if class == classHeavy {
					moved = at
				} else if moved >= 0 && at < moved+hold {
					t.Fatalf("stalled for %v s after %v s: light %v s after it was heavy, want not before %v s", length, stall, at-moved, hold)
				}
			}
			if moved < 0 {
				t.Fatalf("stalled for %v s after %v s: never heavy, so this test shows nothing", length, stall)
			}
		}
	}
}
