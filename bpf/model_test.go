// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

var (
	programs = []string{"pw_class_probe", "pw_band", "pw_police", "pw_ceiling", ofGroup}
	policies = []terms.Policy{terms.PolicyStrict, terms.PolicyElephants, terms.PolicyFlat}
)

// ofGroup is pw_ceiling for a pod of a group.
const ofGroup = "pw_ceiling of a group"

// inGroup gives the direction a group with a share of its limit.
func inGroup(m *model.Direction, bits float64) {
	m.Config.Group, m.Config.GroupRate = 7, rate(bits)
	m.Config.GroupBurst = m.Config.CeilingBurst
}

// randomPacket is one of 24 flows, mostly TCP, of any size.
func randomPacket(random *rand.Rand) model.Packet {
	ports := func() bpftest.Layer { return bpftest.TCP(uint16(1000+random.IntN(8)), 443, 5) }
	tos := uint8(random.IntN(4))
	var data []byte
	switch size := random.IntN(1400); random.IntN(8) {
	case 0:
		data = bpftest.Build(size, bpftest.Ethernet(0x86dd), bpftest.IPv6("2001:db8::1", "2001:db8::2", 6, 64, tos), ports())
	case 1:
		data = bpftest.Build(28, bpftest.Ethernet(0x0806))
	case 2:
		data = bpftest.Build(size, bpftest.Ethernet(0x8100), bpftest.VLAN(3, 0x0800), bpftest.IPv4("10.1.0.1", "10.1.0.2", 6, tos, 0, 0), ports())
	default:
		data = bpftest.Build(size, bpftest.Ethernet(0x0800), bpftest.IPv4("10.0.0.1", "10.0.0.2", 6, tos, 0, 0), ports())
	}
	p := model.Packet{Data: data, Priority: random.Uint32(), Stamp: uint64(random.IntN(3)) * 1e9}
	if random.IntN(4) == 0 {
		p.GSOSize, p.GSOSegs = uint32(1+random.IntN(1448)), uint32(random.IntN(800))
		p.WireLen = uint32(len(data) + random.IntN(60000))
	}
	if random.IntN(2) == 0 {
		p.Backlog = uint32(random.IntN(60_000))
	}
	if few := func() uint32 { return uint32(random.IntN(3)) }; random.IntN(2) == 0 {
		p.Sender = &model.Sender{Out: few(), Sacked: few(), Lost: few(), Retransmitted: few()}
	}
	return p
}

// Long runs at many rates: the dataplane and the model do and remember the
// same, packet by packet.
func TestPrivilegedDataplaneEqualsModel(t *testing.T) {
	d := bpftest.Load(t)
	rates := []float64{8e3, 10e6, 400e9}
	if !testutil.Emulated() { // an emulated processor takes a minute for each
		rates = append(rates, 1e6, 100e6, 1e9, 10e9)
	}
	for _, bits := range rates {
		for _, policy := range policies {
			for _, program := range programs {
				name := fmt.Sprintf("%s %v at %.0e bit/s", program, policy, bits)
				t.Run(name, func(t *testing.T) {
					if bits != 10e6 {
						mark.NightlyKernels(t, "10 Mbit/s decides; the ends are about the numbers")
					}
					longRun(t, d.For(t), bits, policy, program)
				})
			}
		}
	}
}

func longRun(t *testing.T, d *bpftest.Dataplane, bits float64, policy terms.Policy, program string) {
	t.Helper()
	m := newDirection(bits, policy)
	// An estimate that 300 packets reach and 3 do not, at any rate.
	m.Config.SketchRate = sketchRate(1e6, 0.1, 10)
	m.Config.HalfLifeShift = 10 - uint32(policy)
	m.Config.FrameEstimate = uint32(model.Cost(m.Config.SketchRate, 700))
	m.Config.FairRate, m.Config.FairHalfLifeShift = sketchRate(1e6, 0.5, 9), 9
	m.Config.FairFrameEstimate = uint32(model.Cost(m.Config.FairRate, 700))
	// And meters that fill up.
	packets := func(n float64) shaping.MeterTime { return shaping.MeterTime(n * 700 * 8e9 * 64 / bits) }
	m.Config.TotalBurst = min(m.Config.TotalBurst, packets(10))
	m.Config.TotalHorizon = min(m.Config.TotalHorizon, packets(40))
	m.Config.LightTolerance = min(m.Config.LightTolerance, packets(40))
	m.Config.CeilingBurst = min(m.Config.CeilingBurst, packets(10))
	setFair(&m.Config)
	usual := model.Light
	switch program {
	case "pw_ceiling":
		usual = model.DropCeiling
	case ofGroup:
		program, usual = "pw_ceiling", model.DropGroup
		inGroup(m, 0.9*bits)
	}
	reset(d, m)
	random := rand.New(rand.NewPCG(uint64(bits), uint64(policy)))
	now := random.Uint64() >> 1
	seen := map[model.Disposition]int{}
	for range 300 {
		p := randomPacket(random)
		// Around the time that the packet takes at the cap, now and then a pause.
		now += uint64(random.Float64() * 1.6 * float64(len(p.Data)) * 8e9 / bits)
		if random.IntN(100) == 0 {
			now += uint64(random.Int64N(3e9))
		}
		s := &step{
			program: program, packet: p, random: random.Uint32(),
			clock: model.Clock{ExactNS: now, CoarseNS: now - uint64(random.Int64N(1+min(4e6, int64(20*700*8e9/bits))))},
		}
		out, ok := both(t, d, m, s)
		if !ok {
			t.Fatalf("the kernel does not build a packet of %d bytes", len(p.Data))
		}
		seen[out.Disposition]++
		if t.Failed() {
			t.FailNow()
		}
	}
	if policy != terms.PolicyFlat && (seen[usual] < 3 || len(seen) < 2) {
		t.Errorf("the run saw only %v", seen)
	}
}

// FuzzDataplane decodes a run from bytes: what it does to each packet and what
// it remembers is what the model does and remembers.
func FuzzDataplane(f *testing.F) {
	d := bpftest.Load(f)
	f.Add(uint8(0), uint8(0), uint32(1e6), []byte("a flow and a pause and a flow"))
	f.Add(uint8(1), uint8(1), uint32(1e4), []byte{255, 255, 255, 255, 1, 2, 3, 4, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9})
	f.Add(uint8(2), uint8(0), uint32(1e9), make([]byte, 120))
	f.Add(uint8(3), uint8(2), uint32(1e5), make([]byte, 240))
	f.Add(uint8(4), uint8(0), uint32(1e5), make([]byte, 240))
	f.Fuzz(func(t *testing.T, program, policy uint8, bits uint32, script []byte) {
		d := d.For(t)
		m := newDirection(float64(max(bits, 1000)), policies[int(policy)%len(policies)])
		name := programs[int(program)%len(programs)]
		if name == ofGroup {
			name = "pw_ceiling"
			inGroup(m, 0.9*float64(max(bits, 1000)))
		}
		reset(d, m)
		random := rand.New(rand.NewPCG(uint64(bits), 1))
		now := uint64(random.Int64())
		for i := 0; i+6 <= min(len(script), 6*64); i += 6 {
			w := binary.LittleEndian.Uint32(script[i:])
			now += uint64(w) << (script[i+4] & 7)
			size := int(binary.LittleEndian.Uint16(script[i+4:]) % 1400)
			flow := uint16(script[i+5] & 7)
			p := model.Packet{Data: bpftest.Build(size, bpftest.Ethernet(0x0800),
				bpftest.IPv4("10.0.0.1", "10.0.0.2", 17, script[i+5]>>6, 0, 0), bpftest.UDP(flow, 9))}
			if script[i+4]&8 != 0 {
				p.GSOSize, p.GSOSegs = 1+w%1448, w>>16%900
				p.WireLen = uint32(len(p.Data)) + w%60000
			}
			if script[i+4]&16 != 0 {
				p.Backlog = w
			}
			if script[i+4]&32 != 0 {
				p.Sender = &model.Sender{Out: w & 3, Sacked: w >> 2 & 3, Lost: w >> 4 & 3, Retransmitted: w >> 6 & 3}
			}
			both(t, d, m, &step{
				program: name, packet: p, random: random.Uint32(),
				clock: model.Clock{ExactNS: now, CoarseNS: now - uint64(w%4e6)},
			})
		}
	})
}

// FuzzParse sends any bytes: the flow and the wire bytes are the model's.
func FuzzParse(f *testing.F) {
	d := bpftest.Load(f)
	for _, data := range bpftest.Corpus() {
		f.Add(data, false, uint16(0), uint16(0))
		f.Add(data, true, uint16(1448), uint16(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, l3Only bool, gsoSize, gsoSegs uint16) {
		if len(data) < 14 || len(data) > 1500 {
			return // the kernel does not build it
		}
		d := d.For(t)
		d.SetCopy(gsoSegs&1 != 0)
		parseBoth(t, d, data, l3Only, uint32(gsoSize), uint32(gsoSegs))
	})
}

// parseBoth reports whether the kernel built the packet.
func parseBoth(t *testing.T, d *bpftest.Dataplane, data []byte, l3Only bool, gsoSize, gsoSegs uint32) bool {
	t.Helper()
	m := newDirection(1e6, terms.PolicyElephants)
	m.Config.L3Only = l3Only
	m.Config.SketchRate = shaping.FixedRate{Mult: 1 << 40} // every packet is heavy
	reset(d, m)
	p := model.Packet{
		Data: data, GSOSize: gsoSize, GSOSegs: gsoSegs,
		Protocol: binary.BigEndian.Uint16(data[12:]),
	}
	if p.Protocol < 0x600 {
		p.Protocol = 0x0004 // eth_type_trans: 802.3, unless it is Novell's
		if len(data) >= 16 && data[14] == 0xff && data[15] == 0xff {
			p.Protocol = 0x0001
		}
	}
	now := 1000 * millisecond
	_, before := d.Counters()
	s := &step{program: "pw_police", packet: p, clock: model.Clock{ExactNS: now, CoarseNS: now}}
	want, ok := both(t, d, m, s)
	_, after := d.Counters()
	if got := after[want.Disposition] - before[want.Disposition]; ok && got != uint64(want.Bytes) {
		t.Errorf("counted %d wire bytes, want %d", got, want.Bytes)
	}
	return ok
}

// The kinds of packets, with and without Ethernet header.
func TestPrivilegedParse(t *testing.T) {
	d := bpftest.Load(t)
	for name, data := range bpftest.Corpus() {
		t.Run(name, func(t *testing.T) {
			d := d.For(t)
			parseBoth(t, d, data, false, 0, 0)
			parseBoth(t, d, data, false, 1448, 20)
			parseBoth(t, d, data, false, 8, 0)
			d.SetCopy(true)
			defer d.SetCopy(false)
			parseBoth(t, d, data, false, 8, 0)
			if !parseBoth(t, d, bpftest.Tag(data), false, 0, 0) {
				t.Error("the kernel does not build the packet with a tag")
			}
		})
	}
	// Bytes 12 and 13 are where the kernel looks for the EtherType.
	layer3 := map[string][]byte{
		"UDP without Ethernet":       bpftest.Build(40, bpftest.IPv4("8.0.0.1", "10.0.0.2", 17, 0, 0, 0), bpftest.UDP(1, 2)),
		"IPv6 UDP without Ethernet":  bpftest.Build(40, bpftest.IPv6("2001:db8:86dd::1", "2001:db8::2", 17, 64, 0), bpftest.UDP(1, 2)),
		"other than IP, no Ethernet": bpftest.Build(60, bpftest.Raw(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x47)),
	}
	for name, data := range layer3 {
		t.Run(name, func(t *testing.T) {
			if !parseBoth(t, d.For(t), data, true, 0, 0) {
				t.Error("the kernel does not build the packet")
			}
		})
	}
}
