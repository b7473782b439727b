// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

const millisecond = uint64(time.Millisecond)

// rate is what a byte costs at bits per second, in 1/64 ns.
func rate(bitsPerSecond float64) shaping.FixedRate {
	return fixed(8e9 * 64 / bitsPerSecond)
}

// sketchRate is what a byte adds to an estimate if share of the rate is
// EstimateOne, where estimates halve in 2^shift ticks.
func sketchRate(bitsPerSecond, share float64, shift uint32) shaping.FixedRate {
	meanLife := float64(uint64(1)<<(shift+model.TickShift)) / 1e9 / math.Ln2
	return fixed(model.EstimateOne / (bitsPerSecond / 8 * share * meanLife))
}

// fixed is a cost per byte with as many bits as struct pw_rate allows.
func fixed(costPerByte float64) shaping.FixedRate {
	shift := uint32(0)
	for costPerByte < 1<<42 && shift < 62 {
		costPerByte *= 2
		shift++
	}
	return shaping.FixedRate{Mult: uint64(costPerByte), Shift: shift}
}

func meterTime(d time.Duration) shaping.MeterTime { return shaping.MeterTime(d) << 6 }

// newDirection is a direction with the default settings.
func newDirection(bitsPerSecond float64, policy terms.Policy) *model.Direction {
	m := &model.Direction{Config: shaping.Datapath{
		Policy: policy, Direction: terms.Egress,
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
	c.FairFrameEstimate = uint32(min(model.Cost(c.FairRate, 1514), math.MaxUint32))
	setFair(c)
	if policy == terms.PolicyStrict {
		c.SketchRate, c.HalfLifeShift, c.FrameEstimate = c.FairRate, c.FairHalfLifeShift, c.FairFrameEstimate
		c.LightLeast, c.LightMost = model.EstimateOne/64, model.EstimateOne/4
	} else {
		c.SketchRate, c.HalfLifeShift = sketchRate(bitsPerSecond, 0.05, 10), 10
		c.LightLeast, c.LightMost = model.EstimateOne, model.EstimateOne
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
func setFair(c *shaping.Datapath) {
	c.FairMost = c.TotalHorizon - c.TotalHorizon/8
	c.FairLeast, c.FairEach = c.FairMost/4, c.FairMost/16
}

// step is one packet of a run of the dataplane and the model.
type step struct {
	program string
	packet  model.Packet
	clock   model.Clock
	random  uint32
}

// outcome runs the model.
func (s *step) outcome(m *model.Direction) model.Outcome {
	switch s.program {
	case "pw_class_probe":
		return m.Class(&s.packet, s.clock, s.random)
	case "pw_band":
		return m.Band(&s.packet, s.clock, s.random)
	case "pw_ceiling":
		return m.Ceiling(&s.packet, s.clock)
	default:
		return m.Police(&s.packet, s.clock, s.random)
	}
}

// both sends a packet through the dataplane and the model and compares what
// they do to it and what they remember. It reports false for a packet that the
// kernel does not build.
func both(t *testing.T, d *bpftest.Dataplane, m *model.Direction, s *step) (model.Outcome, bool) {
	t.Helper()
	before, beforeBytes := d.Counters()
	m.LightBytes = beforeBytes[model.Light]
	d.SetClock(s.clock, s.random)
	got, err := d.Run(s.program, &s.packet)
	if err != nil {
		return model.Outcome{}, false
	}
	want := s.outcome(m)
	after, _ := d.Counters()
	for i := range after {
		expected := before[i]
		if model.Disposition(i) == want.Disposition {
			expected++
		}
		if after[i] != expected {
			t.Errorf("%s: %d packets were %v, want %d (the model says %v)",
				s.program, after[i], model.Disposition(i), expected, want.Disposition)
		}
	}
	compareResult(t, s, &got, &want)
	compareState(t, d, m)
	return want, true
}

func compareResult(t *testing.T, s *step, got *bpftest.Result, want *model.Outcome) {
	t.Helper()
	verdict := int32(-1)
	switch {
	case want.Disposition.Dropped() && want.ClassID == 0:
		verdict = 2
	case s.program == "pw_class_probe":
		verdict = 0
	}
	if got.Verdict != verdict {
		t.Errorf("%s answers %d, want %d (%v)", s.program, got.Verdict, verdict, want.Disposition)
	}
	if got.Stamp != want.Stamp {
		t.Errorf("%s stamps %d ns, want %d (%v)", s.program, got.Stamp, want.Stamp, want.Disposition)
	}
	if got.Priority != want.Priority {
		t.Errorf("%s sets priority %#x, want %#x (%v)", s.program, got.Priority, want.Priority, want.Disposition)
	}
	if got.ClassID != uint32(want.ClassID) {
		t.Errorf("%s answers class %d, want %d (%v)", s.program, got.ClassID, want.ClassID, want.Disposition)
	}
	if want.Disposition == model.Marked || s.program != "pw_police" {
		return
	}
	if !bytes.Equal(got.Data, s.packet.Data) {
		t.Errorf("%s changes the packet without marking it", s.program)
	}
}

// compareState compares everything that outlives a packet.
func compareState(t *testing.T, d *bpftest.Dataplane, m *model.Direction) {
	t.Helper()
	got := d.State()
	want := image.State{
		LightTat: m.Light.TAT, TotalTat: m.Total.TAT, UnlistedHeavyBytes: m.Heavy.Unlisted,
		ActivePeriod: uint64(m.Active.Period), ActiveBefore: m.Active.Before, ActiveNow: m.Active.Now,
		Flows: m.Flows.Words, EstablishedTat: m.Established.TAT, ControlTat: m.Control.TAT,
		CeilingTat: m.CeilingMeter.TAT, CeilingFor: m.CeilingFor,
		Fair: m.Fair.Word(), FairExtra: m.Fair.Extra, FairCut: m.Fair.Seen(),
		WaitClock: m.Waits.Clock, WaitFrame: m.Waits.Frame, WaitFactor: m.Waits.Factor,
		WaitBytes: m.Waits.Bytes, WaitSince: m.Waits.SinceNS, WaitedNs: m.Waits.NS, Waits: m.Waits.Packets,
		Newcomers: image.Cell{Est: m.Newcomers.Est, Tick: m.Newcomers.Tick},
	}
	for row := range m.Sketch.Cells {
		for i, c := range m.Sketch.Cells[row] {
			want.Cells[row][i] = image.Cell{Est: c.Est, Tick: c.Tick}
		}
		for i, c := range m.Recent.Cells[row] {
			want.Recent[row][i] = image.Cell{Est: c.Est, Tick: c.Tick}
		}
	}
	for i := range m.Heavy.Slots {
		want.Heavy[i] = heavySlot(&m.Heavy.Slots[i])
	}
	if *got != want {
		t.Errorf("state (-dataplane +model):\n%s", cmp.Diff(*got, want))
	}
	if m.Config.Group != 0 {
		compareGroup(t, d, m)
	}
}

func compareGroup(t *testing.T, d *bpftest.Dataplane, m *model.Direction) {
	t.Helper()
	want := image.Group{
		Tat: m.Group.Meter.TAT, TatFor: m.Group.For,
		Dropped: image.Count{Packets: m.Group.Packets, Bytes: m.Group.Bytes},
	}
	if diff := cmp.Diff(d.Group(m.Config.Group), want); diff != "" {
		t.Errorf("group (-dataplane +model):\n%s", diff)
	}
}

func heavySlot(h *model.Heavy) image.Heavy {
	if h.ID == 0 {
		return image.Heavy{}
	}
	return image.Heavy{
		Id: uint64(h.ID), Bytes: h.Bytes, FirstSeenNs: h.FirstSeenNS, LastSeenNs: h.LastSeen,
		Flow: flow(&h.Flow),
	}
}

// flow is a flow as the C has it: 32-bit words and ports in network order.
func flow(f *model.Flow) image.Flow {
	out := image.Flow{
		Sport: swap(f.SrcPort), Dport: swap(f.DstPort), Protocol: f.Protocol, Kind: uint8(f.Kind),
		Ethertype: swap(f.EtherType),
	}
	for i := range out.Src {
		out.Src[i] = binary.LittleEndian.Uint32(f.Src[4*i:])
		out.Dst[i] = binary.LittleEndian.Uint32(f.Dst[4*i:])
	}
	return out
}

func swap(v uint16) uint16 { return v<<8 | v>>8 }

// reset takes the dataplane and the model back to no history.
func reset(d *bpftest.Dataplane, m *model.Direction) {
	d.Configure(m)
	d.WriteState(&image.State{})
	if m.Config.Group != 0 {
		d.WriteGroup(m.Config.Group, image.Group{})
	}
}
