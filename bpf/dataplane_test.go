// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
)

const (
	millisecond = uint64(time.Millisecond)
	// tickShift is PW_TICK_SHIFT and estimateOne PW_EST_ONE of bpf/lib/abi.h.
	tickShift   = 20
	estimateOne = 1 << 24
)

// cost is what a packet of up to 1 MiB costs at a rate.
func cost(r image.Rate, bytes uint32) uint64 {
	return (uint64(bytes)*r.Mult + (1<<r.Shift - 1)) >> r.Shift
}

// rate is what a byte costs at bits per second, in 1/64 ns.
func rate(bitsPerSecond float64) image.Rate {
	return fixed(8e9 * 64 / bitsPerSecond)
}

// sketchRate is what a byte adds to an estimate if share of the rate is
// EstimateOne, where estimates halve in 2^shift ticks.
func sketchRate(bitsPerSecond, share float64, shift uint32) image.Rate {
	meanLife := float64(uint64(1)<<(shift+tickShift)) / 1e9 / math.Ln2
	return fixed(estimateOne / (bitsPerSecond / 8 * share * meanLife))
}

// fixed is a cost per byte with as many bits as struct pw_rate allows.
func fixed(costPerByte float64) image.Rate {
	shift := uint32(0)
	for costPerByte < 1<<42 && shift < 62 {
		costPerByte *= 2
		shift++
	}
	return image.Rate{Mult: uint64(costPerByte), Shift: shift}
}

func meterTime(d time.Duration) uint64 { return uint64(d) << 6 }

// newDirection is a direction with the default settings.
func newDirection(bitsPerSecond float64, policy terms.Policy) *bpftest.Direction {
	m := &bpftest.Direction{Config: image.Config{
		Policy: uint8(policy), Direction: uint8(terms.Egress),
		LightRate: rate(bitsPerSecond * 0.9), LightTolerance: meterTime(50 * time.Millisecond),
		TotalRate: rate(bitsPerSecond), TotalBurst: meterTime(10 * time.Millisecond),
		TotalHorizon: meterTime(50 * time.Millisecond),
		HoldTicks:    477,
		CeilingRate:  rate(bitsPerSecond * 1.02), CeilingBurst: meterTime(60 * time.Millisecond),
		LightPriority: 6, HeavyPriority: 2, ExemptPriority: 0x50001,
		LightClass: 1, HeavyClass: 2, ExemptClass: 3, DropClass: 4,
	}}
	c := &m.Config
	c.FairRate, c.FairHalfLifeShift = sketchRate(bitsPerSecond, 1, 5), 5
	c.FairFrameEst = uint32(min(cost(c.FairRate, 1514), math.MaxUint32))
	setFair(c)
	if policy == terms.PolicyStrict {
		c.SketchRate, c.HalfLifeShift, c.FrameEst = c.FairRate, c.FairHalfLifeShift, c.FairFrameEst
		c.LightLeast, c.LightMost = estimateOne/64, estimateOne/4
	} else {
		c.SketchRate, c.HalfLifeShift = sketchRate(bitsPerSecond, 0.05, 10), 10
		c.LightLeast, c.LightMost = estimateOne, estimateOne
	}
	random := rand.New(rand.NewPCG(1, uint64(policy)))
	for i := range m.Keys {
		for j := range m.Keys[i] {
			m.Keys[i][j] = random.Uint64()
		}
	}
	return m
}

// setFair sets what follows from the horizon.
func setFair(c *image.Config) {
	c.FairMost = c.TotalHorizon - c.TotalHorizon/8
	c.FairLeast, c.FairEach = c.FairMost/4, c.FairMost/16
}

// step is one packet and its time.
type step struct {
	program string
	packet  bpftest.Packet
	clock   bpftest.Clock
	random  uint32
}

// What became of a packet that has no disposition of its own: it passed and was counted
// before, or its group's ceiling dropped it.
const (
	uncounted = image.Dispositions
	dropGroup = image.Dispositions + 1
)

// outcome is what a program did to a packet.
type outcome struct {
	bpftest.Result
	was image.Disposition
	// bytes are the wire bytes that were counted.
	bytes uint64
}

func (o *outcome) dropped() bool { return o.Verdict == verdictDrop || isDrop(o.was) }

func isDrop(was image.Disposition) bool {
	return was >= image.DropHorizon && was <= image.DropPoliced || was == image.DropCeiling || was == dropGroup
}

// send sends a packet through a program, and holds what it answers and sets to what it
// counts. It reports false for a packet that the kernel does not build.
func send(t *testing.T, d *bpftest.Dataplane, m *bpftest.Direction, s *step) (outcome, bool) {
	t.Helper()
	before, bytesBefore := d.Counters()
	d.SetClock(s.clock, s.random)
	result, err := d.Run(s.program, &s.packet)
	if err != nil {
		return outcome{}, false
	}
	out := outcome{Result: result, was: uncounted}
	after, bytesAfter := d.Counters()
	for i := range after {
		if after[i] == before[i] {
			continue
		}
		if out.was != uncounted || after[i] != before[i]+1 {
			t.Errorf("%s counts a packet more than once", s.program)
		}
		out.was, out.bytes = image.Disposition(i), bytesAfter[i]-bytesBefore[i]
	}
	if out.was == uncounted && result.Verdict == verdictDrop {
		out.was = dropGroup
	}
	checkResult(t, &m.Config, s, &out)
	return out, true
}

func checkResult(t *testing.T, c *image.Config, s *step, got *outcome) {
	t.Helper()
	want := bpftest.Result{Verdict: verdictNext, Priority: s.packet.Priority, Stamp: s.packet.Stamp}
	class := c.HeavyClass
	if s.program == "pw_class_probe" || s.program == "pw_band" {
		switch want.Priority = c.HeavyPriority; got.was {
		case image.Light:
			want.Priority, class = c.LightPriority, c.LightClass
		case image.Exempt:
			want.Priority, class = c.ExemptPriority, c.ExemptClass
		case image.DropEarly, image.DropHorizon:
			class = c.DropClass
		default: // heavy
		}
	}
	if s.program == "pw_class_probe" {
		want.Verdict, want.ClassID = verdictOwnClass, uint32(class)
	}
	if isDrop(got.was) && want.ClassID == 0 {
		want.Verdict = verdictDrop
	}
	want.Data = got.Data // a mark is checked by TestPrivilegedMark
	if s.program == "pw_police" && got.was != image.Marked {
		want.Data = s.packet.Data
	}
	if !reflect.DeepEqual(want, got.Result) { // cmp compares bytes one by one, which takes longer than all else
		t.Errorf("%s of a packet that is counted as %d (-want +got):\n%s", s.program, got.was, cmp.Diff(want, got.Result))
	}
}

// reset takes the dataplane back to no history.
func reset(d *bpftest.Dataplane, m *bpftest.Direction) {
	d.Configure(m)
	d.WriteState(&image.State{})
	if m.Config.Group != 0 {
		d.WriteGroup(m.Config.Group, image.Group{})
	}
}
