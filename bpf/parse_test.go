// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var (
	programs = []string{"pw_class_probe", "pw_band", "pw_police", "pw_ceiling", ofGroup}
	policies = []terms.Policy{terms.PolicyStrict, terms.PolicyElephants, terms.PolicyFlat}
)

// ofGroup is pw_ceiling for a pod of a group.
const ofGroup = "pw_ceiling of a group"

// inGroup gives the direction a group with a share of its limit.
func inGroup(m *bpftest.Direction, bits float64) {
	m.Config.InGroup, m.Config.Group, m.Config.GroupRate = 1, 7, rate(bits)
	m.Config.GroupBurst = m.Config.CeilingBurst
}

// randomPacket is one of 24 flows, mostly TCP, of any size.
func randomPacket(random *rand.Rand) bpftest.Packet {
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
	p := bpftest.Packet{Data: data, Priority: random.Uint32(), Stamp: uint64(random.IntN(3)) * 1e9}
	if random.IntN(4) == 0 {
		p.GSOSize, p.GSOSegs = uint32(1+random.IntN(1448)), uint32(random.IntN(800))
		p.WireLen = uint32(len(data) + random.IntN(60000))
	}
	if random.IntN(2) == 0 {
		p.Backlog = uint32(random.IntN(60_000))
	}
	if few := func() uint32 { return uint32(random.IntN(3)) }; random.IntN(2) == 0 {
		p.Sender = &bpftest.Sender{Out: few(), Sacked: few(), Lost: few(), Retransmitted: few()}
	}
	return p
}

// FuzzDataplane decodes a run from bytes: the answers fit the counters, and the total
// meter is never further ahead than what it admits and a packet.
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
			p := bpftest.Packet{Data: bpftest.Build(size, bpftest.Ethernet(0x0800),
				bpftest.IPv4("10.0.0.1", "10.0.0.2", 17, script[i+5]>>6, 0, 0), bpftest.UDP(flow, 9))}
			if script[i+4]&8 != 0 {
				p.GSOSize, p.GSOSegs = 1+w%1448, w>>16%900
				p.WireLen = uint32(len(p.Data)) + w%60000
			}
			if script[i+4]&16 != 0 {
				p.Backlog = w
			}
			if script[i+4]&32 != 0 {
				p.Sender = &bpftest.Sender{Out: w & 3, Sacked: w >> 2 & 3, Lost: w >> 4 & 3, Retransmitted: w >> 6 & 3}
			}
			send(t, d, m, &step{
				program: name, packet: p, random: random.Uint32(),
				clock: bpftest.Clock{ExactNS: now, CoarseNS: now - uint64(w%4e6)},
			})
			c := &m.Config
			most := c.TotalBurst + c.TotalHorizon + c.LightTolerance + 2*cost(c.TotalRate, 1<<20)
			tat := d.State().TotalTat // 0 where nothing was asked of it
			if ahead := int64(tat - now<<6); tat != 0 && ahead > int64(most) {
				t.Fatalf("%s: the total meter is %d ahead, want at most %d", name, ahead, most)
			}
		}
	})
}

// FuzzParse sends any bytes: they are of a flow, and count with at least their length.
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
		flow, bytes, ok := parsed(t, d, &bpftest.Packet{Data: data, GSOSize: uint32(gsoSize), GSOSegs: uint32(gsoSegs)}, l3Only)
		if ok && (flow == "no flow" || bytes < uint64(len(data))) {
			t.Errorf("%d bytes are of %s, and count as %d", len(data), flow, bytes)
		}
	})
}

// parsed sends a packet where every one is heavy, and says of which flow it is and what it
// counts. It reports false if the kernel did not build it.
func parsed(t *testing.T, d *bpftest.Dataplane, p *bpftest.Packet, l3Only bool) (flow string, bytes uint64, ok bool) {
	t.Helper()
	m := newDirection(1e6, terms.PolicyElephants)
	if l3Only {
		m.Config.L3Only = 1
	}
	m.Config.SketchRate = image.Rate{Mult: 1 << 40}
	reset(d, m)
	now := 1000 * millisecond
	out, ok := send(t, d, m, &step{program: "pw_police", packet: *p, clock: bpftest.Clock{ExactNS: now, CoarseNS: now}})
	if !ok {
		return "", 0, false
	}
	state := d.State()
	if state.ControlTat != 0 {
		return "control", out.bytes, true
	}
	for i := range state.Heavy {
		if h := &state.Heavy[i]; h.Id != 0 {
			return describe(&h.Flow), out.bytes, true
		}
	}
	return "no flow", out.bytes, true
}

// describe writes a flow, whose words are in network order.
func describe(f *image.Flow) string {
	address := func(words [4]uint32) string {
		var b [16]byte
		for i, w := range words {
			binary.LittleEndian.PutUint32(b[4*i:], w)
		}
		return netip.AddrFrom16(b).Unmap().String()
	}
	swap := func(v uint16) uint16 { return v<<8 | v>>8 }
	kind := map[uint8]string{uint8(image.FlowPorts): "ports", uint8(image.FlowHosts): "hosts", uint8(image.FlowEther): "ether"}[f.Kind]
	return fmt.Sprintf("%s %#04x %d %s %d %s %d", kind, swap(f.Ethertype), f.Protocol, address(f.Src), swap(f.Sport), address(f.Dst), swap(f.Dport))
}

// parseGolden has of each kind of packet its flow, and what it counts: as it is, in 20
// segments of 1,448 bytes, and in segments of 8 bytes whose number the kernel does not tell.
const parseGolden = "testdata/parse.golden"

// TestPrivilegedParse holds what the parser reads to the golden file, which UPDATE=1
// writes; also where the packet is not in one piece, or has a tag.
func TestPrivilegedParse(t *testing.T) {
	d := bpftest.Load(t)
	layer3 := map[string][]byte{
		// Bytes 12 and 13 are where the kernel looks for the EtherType.
		"UDP without Ethernet":       bpftest.Build(40, bpftest.IPv4("8.0.0.1", "10.0.0.2", 17, 0, 0, 0), bpftest.UDP(1, 2)),
		"IPv6 UDP without Ethernet":  bpftest.Build(40, bpftest.IPv6("2001:db8:86dd::1", "2001:db8::2", 17, 64, 0), bpftest.UDP(1, 2)),
		"other than IP, no Ethernet": bpftest.Build(60, bpftest.Raw(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x47)),
	}
	all := bpftest.Corpus()
	maps.Copy(all, layer3)
	var got, want strings.Builder
	golden := must.Get(os.ReadFile(parseGolden))(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		data, l3Only := all[name], layer3[name] != nil
		flow, bytes, ok := parsed(t, d, &bpftest.Packet{Data: data}, l3Only)
		if !ok {
			continue // the kernel does not build it
		}
		_, segments, _ := parsed(t, d, &bpftest.Packet{Data: data, GSOSize: 1448, GSOSegs: 20}, l3Only)
		_, small, _ := parsed(t, d, &bpftest.Packet{Data: data, GSOSize: 8}, l3Only)
		fmt.Fprintf(&got, "%s: %s, %d B, %d B, %d B\n", name, flow, bytes, segments, small)
		for line := range strings.Lines(string(golden)) {
			if strings.HasPrefix(line, name+": ") {
				want.WriteString(line)
			}
		}
		d.SetCopy(true)
		copied, bytesCopied, _ := parsed(t, d, &bpftest.Packet{Data: data, GSOSize: 8}, l3Only)
		d.SetCopy(false)
		if copied != flow || bytesCopied != small {
			t.Errorf("%s, not in one piece: %s, %d B; want %s, %d B", name, copied, bytesCopied, flow, small)
		}
		if l3Only {
			continue
		}
		if _, _, ok := parsed(t, d, &bpftest.Packet{Data: bpftest.Tag(data)}, false); !ok {
			t.Errorf("%s: the kernel does not build the packet with a tag", name)
		}
	}
	if os.Getenv("UPDATE") != "" {
		must.OK(t, os.WriteFile(parseGolden, []byte(got.String()), 0o644))
	}
	must.Match(t, parseGolden, want.String(), got.String())
}
