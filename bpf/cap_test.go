// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// flood is an attempt on the cap: packets of a size, at three times the cap.
type flood struct {
	program string
	bits    float64
	// size is in wire bytes.
	size uint32
	// ports is the number of source ports that take turns.
	ports int
	ecn   uint8
}

// Lengths of the meters in packets of the flood, so that a flood of any rate
// and size fills them.
const (
	floodPackets   = 1500
	floodBurst     = 20
	floodHorizon   = 50
	floodTolerance = 50
	floodHeavy     = 10
	floodOverload  = 3
	// The coarse clock is behind by at most this many packets.
	floodLag = 4
)

func (f *flood) String() string {
	return fmt.Sprintf("%s %.0e bit/s %d B, %d ports, ECN %d", f.program, f.bits, f.size, f.ports, f.ecn)
}

// packetNS is how long a packet takes at the cap.
func (f *flood) packetNS() float64 { return float64(f.size) * 8e9 / f.bits }

func (f *flood) direction() *bpftest.Direction {
	m := newDirection(f.bits, terms.PolicyStrict)
	packets := func(n float64) uint64 { return uint64(n * f.packetNS() * 64) }
	m.Config.TotalBurst, m.Config.TotalHorizon = packets(floodBurst), packets(floodHorizon)
	m.Config.LightTolerance = packets(floodTolerance)
	m.Config.SketchRate = fixed(estimateOne / 4 / (floodHeavy * float64(f.size)))
	m.Config.FrameEst = 0
	setFair(&m.Config)
	return m
}

// packet is the i-th packet of the flood; more than 1514 bytes are segments.
func (f *flood) packet(i int) bpftest.Packet {
	const headers = 14 + 20 + 20
	data := bpftest.Build(int(min(f.size, 1514))-headers, bpftest.Ethernet(0x0800),
		bpftest.IPv4("10.0.0.1", "192.0.2.9", 6, f.ecn, 0, 0), bpftest.TCP(uint16(1024+i%f.ports), 443, 5))
	p := bpftest.Packet{Data: data, WireLen: f.size, Stamp: 1}
	if f.size > 1514 {
		p.GSOSize, p.GSOSegs = 8, 1+(f.size-1514)/headers
	}
	if f.size > 65536 {
		p.WireLen = 0 // BPF_PROG_TEST_RUN takes no more
	}
	return p
}

func floods() []flood {
	var out []flood
	for _, bits := range []float64{8e3, 1e6, 100e6, 10e9, 400e9} {
		for _, size := range []uint32{60, 1514, 65536, 512 << 10} {
			for _, ports := range []int{1, 60000} {
				for _, ecn := range []uint8{0, 2} {
					out = append(out, flood{"pw_police", bits, size, ports, ecn})
				}
			}
		}
	}
	return out
}

// departed is a packet that passed.
type departed struct {
	atNS  uint64
	bytes uint64
}

// The cap is the cap: one flow or 60,000, with and without ECN, 60 B to
// 512 KiB, 8 kbit/s to 400 Gbit/s, at three times the cap.
func TestPrivilegedCap(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	d := bpftest.Load(t)
	for _, f := range floods() {
		t.Run(f.String(), func(t *testing.T) {
			d := d.For(t)
			m := f.direction()
			reset(d, m)
			checkCap(t, &f, run(d, &f))
		})
	}
}

// run offers the flood and returns what passed.
func run(d *bpftest.Dataplane, f *flood) []departed {
	var out []departed
	at := 1e12
	for i := range floodPackets {
		at += f.packetNS() / floodOverload
		now := uint64(at)
		lag := uint64(f.packetNS() * float64(i%floodLag))
		d.SetClock(bpftest.Clock{ExactNS: now, CoarseNS: now - lag}, uint32(i)*2654435761)
		p := f.packet(i)
		r := d.MustRun(f.program, &p)
		if r.Verdict == verdictDrop {
			continue
		}
		out = append(out, departed{now, uint64(f.size)})
	}
	return out
}

// checkCap drains a bucket at the cap and looks how high it gets: in any
// window t at most cap x t + that level can have passed.
func checkCap(t *testing.T, f *flood, passed []departed) {
	t.Helper()
	// Burst and horizon, for light packets the tolerance beyond that, and a packet.
	const allowed = floodBurst + floodHorizon + floodTolerance + floodLag + 1
	var level, highest float64
	var total uint64
	for i, p := range passed {
		if i > 0 {
			level = max(0, level-float64(p.atNS-passed[i-1].atNS)*f.bits/8e9)
		}
		level += float64(p.bytes)
		highest = max(highest, level)
		total += p.bytes
	}
	must.AtMost(t, "packets above the cap that passed in some window", float64(allowed), highest/float64(f.size))
	span := float64(floodPackets) / floodOverload
	if packets := float64(total) / float64(f.size); packets < 0.97*span {
		t.Errorf("%.0f packets passed in the time of %.0f, want at least 97 %%", packets, span)
	}
}

// Light flows together do not get more than lightShare, and their meter is
// never deeper than its tolerance and a packet, ARP included.
func TestPrivilegedLightMeterIsBounded(t *testing.T) {
	d := bpftest.Load(t)
	for _, what := range []string{"UDP over IPv4", "ARP"} {
		t.Run(what, func(t *testing.T) {
			d := d.For(t)
			f := &flood{program: "pw_band", bits: 10e6, size: 1514, ports: 60000}
			m := f.direction()
			reset(d, m)
			at := 1e12
			for i := range 3000 {
				at += f.packetNS() / floodOverload
				d.SetClock(bpftest.Clock{ExactNS: uint64(at), CoarseNS: uint64(at)}, 0)
				p := f.packet(i)
				if what == "ARP" {
					p = bpftest.Packet{Data: bpftest.Corpus()[what], WireLen: f.size}
				}
				d.MustRun(f.program, &p)
				level := int64(d.State().LightTat-uint64(at)<<6) / int64(f.packetNS()*64)
				if limit := int64(floodTolerance + 2); level > limit {
					t.Fatalf("the light meter is %d packets ahead, want at most %d", level, limit)
				}
			}
		})
	}
}

// A faster rate takes over the debt of a slow one as a full meter, not as the
// minutes that it was.
func TestPrivilegedMeterForgetsASlowerRate(t *testing.T) {
	d := bpftest.Load(t)
	m := newDirection(1e9, terms.PolicyFlat)
	reset(d, m)
	now := uint64(1e12)
	d.WriteState(&image.State{TotalTat: (now + 500e9) << 6})
	p := bpftest.Packet{Data: bpftest.Corpus()["TCP over IPv4"]}
	d.SetClock(bpftest.Clock{ExactNS: now, CoarseNS: now}, math.MaxUint32)
	must.Be(t, "verdict of the first packet: the meter counts as full", verdictDrop, d.MustRun("pw_police", &p).Verdict)
	now += 51 * millisecond
	d.SetClock(bpftest.Clock{ExactNS: now, CoarseNS: now}, math.MaxUint32)
	must.Be(t, "verdict of a packet 51 ms later", verdictNext, d.MustRun("pw_police", &p).Verdict)
}

// CE is set without harm to anything else, in place and behind a tag.
func TestPrivilegedMark(t *testing.T) {
	d := bpftest.Load(t)
	m := newDirection(1e6, terms.PolicyFlat)
	now := uint64(1e12)
	for _, name := range []string{"UDP with ECT(0)", "UDP with ECT(1) over IPv6"} {
		for _, tagged := range []bool{false, true} {
			data, l3 := bpftest.Corpus()[name], 14
			if tagged {
				data, l3 = bpftest.Tag(data), 18
			}
			reset(d, m)
			d.WriteState(&image.State{TotalTat: (now + 30*millisecond) << 6})
			d.SetClock(bpftest.Clock{ExactNS: now, CoarseNS: now}, 0)
			r := d.MustRun("pw_police", &bpftest.Packet{Data: data})
			must.Be(t, fmt.Sprintf("%s, tagged %v: verdict", name, tagged), verdictNext, r.Verdict)
			checkMark(t, name, data, r.Data, l3)
		}
	}
}

func checkMark(t *testing.T, name string, before, after []byte, l3 int) {
	t.Helper()
	want := slices.Clone(before)
	if want[l3]>>4 == 4 {
		want[l3+1] |= 3
		must.Be(t, name+": sum of the IPv4 header", 0xffff, bpftest.Checksum(after[l3:l3+20]))
		copy(want[l3+10:l3+12], after[l3+10:])
	} else {
		want[l3+1] |= 3 << 4
	}
	must.Match(t, name+": marked packet", want, after)
}

// What comes out of a queue passes up to the group's limit and burst. Removing the group costs its burst once more.
func TestPrivilegedCeilingOfAGroup(t *testing.T) {
	const packet = 1514
	d := bpftest.Load(t)
	one := newDirection(100e6, terms.PolicyStrict)
	inGroup(one, 10e6)
	one.Config.GroupBurst = meterTime(12 * time.Millisecond)
	reset(d, one)
	p := bpftest.Packet{Data: bpftest.Build(packet-42, bpftest.Ethernet(0x0800), bpftest.IPv4("10.0.0.1", "10.0.0.2", 17, 0, 0, 0), bpftest.UDP(1, 9))}
	now := uint64(1e12)
	flood := func(times int) (passed int) {
		for range times {
			now += uint64(400 * time.Microsecond) // three times the limit
			s := &step{program: "pw_ceiling", packet: p, clock: bpftest.Clock{ExactNS: now, CoarseNS: now - now%4_000_000}}
			if out, _ := send(t, d, one, s); !out.dropped() {
				passed++
			} else if out.was != dropGroup {
				t.Fatalf("a packet is %v, want %v: the pod has not reached its own ceiling", out.was, dropGroup)
			}
		}
		return passed
	}
	// In a second: 10 Mbit and 12 ms of it and a packet.
	const most = 10_120_000/8/packet + 1
	passed := flood(2500)
	must.Within(t, "packets that pass in a second", most-2, most, passed)
	must.Be(t, "packets that the group counts as dropped", uint64(2500-passed), d.Group(one.Config.Group).Dropped.Packets)
	must.OK(t, d.Map("pw_groups").Delete(one.Config.Group))
	must.Within(t, "packets of 25 in 10 ms that pass after the group was removed: its limit and its burst once more", 15, 21, flood(25))
}

// A group's limit that was raised is in force at once, whatever was counted at the lower one.
func TestPrivilegedGroupOfAnotherLimit(t *testing.T) {
	d := bpftest.Load(t)
	m := newDirection(100e6, terms.PolicyStrict)
	now := uint64(1e12)
	for _, bits := range []float64{1e3, 100e6} {
		inGroup(m, bits)
		d.Configure(m)
		s := &step{program: "pw_ceiling", packet: bpftest.Packet{Data: tcpPacket(0)}, clock: bpftest.Clock{ExactNS: now, CoarseNS: now}}
		if out, _ := send(t, d, m, s); out.was != uncounted {
			t.Errorf("the first packet at %.0f bit/s is %v, want it passed", bits, out.was)
		}
		now += uint64(time.Millisecond)
	}
}

// A packet that will be cut into segments of one byte is charged all headers of them, and
// the next one, which is refused, is not the end of that debt.
func TestPrivilegedCeilingOfSmallSegments(t *testing.T) {
	const bits, segments, headers = 10e6, 65000, 14 + 20 + 20
	d := bpftest.Load(t)
	m := newDirection(bits, terms.PolicyStrict)
	reset(d, m)
	p := bpftest.Packet{Data: tcpPacket(0), GSOSize: 1, GSOSegs: segments}
	debt := time.Duration(float64(len(p.Data)+(segments-1)*headers) * 8e9 / (1.02 * bits))
	begin := uint64(1e12)
	for i, after := range []time.Duration{0, time.Second, 2 * time.Second} {
		now := begin + uint64(after)
		s := &step{program: "pw_ceiling", packet: p, clock: bpftest.Clock{ExactNS: now, CoarseNS: now}}
		out, _ := send(t, d, m, s)
		if refused := out.was == image.DropCeiling; refused != (i > 0) {
			t.Errorf("after %v the packet is %v", after, out.was)
		}
		level := time.Duration((d.State().CeilingTat - now<<6) >> 6)
		must.Within(t, fmt.Sprintf("after %v: how far ahead the ceiling is", after), debt-after-debt/200, debt-after+debt/200, level)
	}
}

// Under policing a flood that asks for marks and ignores them takes nothing from what
// is light: neither from a small flow, nor from ARP, which is light under flat, too.
func TestPrivilegedPolicingLeavesRoomForLight(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	const bits, seconds, overload = 10e6, 2, 3
	d := bpftest.Load(t)
	packet := func(port uint16, ecn uint8, payload int) bpftest.Packet {
		return bpftest.Packet{Data: bpftest.Build(payload, bpftest.Ethernet(0x0800),
			bpftest.IPv4("10.0.0.1", "192.0.2.9", 17, ecn, 0, 0), bpftest.UDP(port, 443))}
	}
	flood := packet(1000, 2, 1472)
	arp, small := bpftest.Packet{Data: bpftest.Corpus()["ARP"]}, packet(2000, 0, 58)
	for policy, light := range map[terms.Policy][]bpftest.Packet{
		terms.PolicyStrict: {small, arp},
		terms.PolicyFlat:   {arp},
	} {
		t.Run(policy.String(), func(t *testing.T) {
			d := d.For(t)
			m := newDirection(bits, policy)
			reset(d, m)
			dropped, next := 0, 1e12
			for at := next; at < 1e12+seconds*1e9 && !t.Failed(); at += float64(len(flood.Data)) * 8e9 / bits / overload {
				clock := bpftest.Clock{ExactNS: uint64(at), CoarseNS: uint64(at)}
				if out, _ := send(t, d, m, &step{program: "pw_police", packet: flood, clock: clock}); out.dropped() {
					dropped++
				}
				if at < next {
					continue
				}
				next += 1e8
				for i := range light {
					out, _ := send(t, d, m, &step{program: "pw_police", packet: light[i], clock: clock})
					must.Be(t, fmt.Sprintf("after %.1f s a packet of %d bytes", (at-1e12)/1e9, len(light[i].Data)), image.Light, out.was)
				}
			}
			must.AtLeast(t, "packets of the flood that were dropped: it has to fill the meter", 1000, dropped)
		})
	}
}

// What comes out of a tunnel in a pod and is cut later: every segment has all headers, those
// inside, too. The policer charges them for full segments. The ceiling charges no more than
// the queue, and older kernels count the outer ones only.
func TestPrivilegedSegmentsInATunnel(t *testing.T) {
	const (
		payload  = 1398    // bytes in a segment
		segments = 2       // BPF_PROG_TEST_RUN builds no more than a page
		inside   = 20 + 32 // IPv4, and TCP with timestamps
	)
	d := bpftest.Load(t)
	ether, v4, v6 := bpftest.Ethernet(0x0800), bpftest.IPv4, bpftest.IPv6
	inner := []bpftest.Layer{v4("10.9.0.1", "10.9.0.2", 6, 0, 0, 0), bpftest.TCP(4000, 443, 8)}
	for name, tt := range map[string]struct {
		outer []bpftest.Layer
		// known is how many bytes of headers the parser finds, all how many there are.
		known, all int
	}{
		"none":               {[]bpftest.Layer{ether}, 14 + inside, 14 + inside},
		"VXLAN":              {[]bpftest.Layer{ether, v4("10.0.0.1", "10.0.0.2", 17, 0, 0, 0), bpftest.UDP(4000, 4789), bpftest.Raw(8, 0, 0, 0, 0, 0, 1, 0), ether}, 14 + 28, 14 + 28 + 8 + 14 + inside},
		"VXLAN over IPv6":    {[]bpftest.Layer{bpftest.Ethernet(0x86dd), v6("fd00::1", "fd00::2", 17, 64, 0), bpftest.UDP(4000, 8472), bpftest.Raw(8, 0, 0, 0, 0, 0, 1, 0), ether}, 14 + 48, 14 + 48 + 8 + 14 + inside},
		"Geneve and options": {[]bpftest.Layer{ether, v4("10.0.0.1", "10.0.0.2", 17, 0, 0, 0), bpftest.UDP(4000, 6081), bpftest.Raw(2, 0, 0x65, 0x58, 0, 0, 1, 0, 0, 1, 2, 1, 0, 0, 0, 0), ether}, 14 + 28, 14 + 28 + 16 + 14 + inside},
		"GRE":                {[]bpftest.Layer{ether, v4("10.0.0.1", "10.0.0.2", 47, 0, 0, 0), bpftest.Raw(0, 0, 8, 0)}, 14 + 20, 14 + 20 + 4 + inside},
		"IP in IP":           {[]bpftest.Layer{ether, v4("10.0.0.1", "10.0.0.2", 4, 0, 0, 0)}, 14 + 20, 14 + 20 + inside},
	} {
		t.Run(name, func(t *testing.T) {
			for last, headers := range map[int]int{payload: tt.all, 1: tt.known} {
				d := d.For(t)
				m := newDirection(1e9, terms.PolicyStrict)
				reset(d, m)
				data := (segments-1)*payload + last
				p := bpftest.Packet{
					Data: bpftest.Build(data, append(tt.outer, inner...)...), GSOSize: payload, GSOSegs: segments,
				}
				clock := bpftest.Clock{ExactNS: 1e12, CoarseNS: 1e12}
				out, ok := send(t, d, m, &step{program: "pw_police", packet: p, clock: clock})
				if !ok {
					t.Fatal("the kernel does not build the packet")
				}
				must.Be(t, fmt.Sprintf("bytes that the policer counts with a last segment of %d", last), tt.all+data+(segments-1)*headers, int(out.bytes))
				send(t, d, m, &step{program: "pw_ceiling", packet: p, clock: clock})
				want := cost(m.Config.CeilingRate, uint32(tt.all+data+(segments-1)*tt.known))
				must.Be(t, fmt.Sprintf("what the ceiling charges with a last segment of %d bytes", last), want, d.State().CeilingTat-1e12<<6)
			}
		})
	}
}
