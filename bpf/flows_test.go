// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Exempt traffic is what the mode says of the remote address, by direction.
func TestPrivilegedSubnets(t *testing.T) {
	d := bpftest.Load(t)
	ipv6 := bpftest.Corpus()["UDP over IPv6"] // 2001:db8::1 to 2001:db8:5::9
	ipv4 := bpftest.Corpus()["UDP over IPv4"] // 10.0.0.1 to 192.0.2.9
	m := newDirection(1e6, terms.PolicyFlat)
	m.Subnets = bpftest.Subnets("192.0.2.0/24", "2001:db8::/64")
	for name, c := range map[string]struct {
		data      []byte
		direction terms.Direction
		mode      shaping.SubnetsMode
		want      image.Disposition
	}{
		"egress to an unshaped subnet":     {ipv4, terms.Egress, shaping.SubnetsUnshaped, image.Exempt},
		"ingress, source elsewhere":        {ipv4, terms.Ingress, shaping.SubnetsUnshaped, image.Paced},
		"egress IPv6, remote elsewhere":    {ipv6, terms.Egress, shaping.SubnetsUnshaped, image.Paced},
		"ingress IPv6 from an unshaped":    {ipv6, terms.Ingress, shaping.SubnetsUnshaped, image.Exempt},
		"egress to a shaped subnet":        {ipv4, terms.Egress, shaping.SubnetsShaped, image.Paced},
		"egress outside of shaped subnets": {ipv6, terms.Egress, shaping.SubnetsShaped, image.Exempt},
		"no mode":                          {ipv4, terms.Egress, shaping.SubnetsNone, image.Paced},
		"not IP":                           {bpftest.Corpus()["PPPoE"], terms.Egress, shaping.SubnetsShaped, image.Paced},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.For(t)
			m.Config.Direction, m.Config.SubnetsMode = uint8(c.direction), uint8(c.mode)
			reset(d, m)
			s := &step{program: "pw_band", packet: bpftest.Packet{Data: c.data}, clock: bpftest.Clock{ExactNS: 1e12, CoarseNS: 1e12}}
			if got, _ := send(t, d, m, s); got.was != c.want {
				t.Errorf("the packet is %v, want %v", got.was, c.want)
			}
			// The ceiling drops no more than what is charged.
			atCeiling := image.DropCeiling
			if c.want == image.Exempt {
				atCeiling = uncounted
			}
			state, rate := d.State(), m.Config.CeilingRate
			state.CeilingTat = (s.clock.ExactNS + uint64(time.Second)) << 6
			state.CeilingFor = rate.Mult ^ uint64(rate.Shift)<<48
			d.WriteState(state)
			s.program = "pw_ceiling"
			if got, _ := send(t, d, m, s); got.was != atCeiling {
				t.Errorf("at the ceiling the packet is %v, want %v", got.was, atCeiling)
			}
		})
	}
}

// The table lists heavy flows with their bytes, and a stale one makes room.
func TestPrivilegedHeavyFlows(t *testing.T) {
	d := bpftest.Load(t)
	m := newDirection(1e6, terms.PolicyElephants)
	m.Config.SketchRate = image.Rate{Mult: 1 << 40}
	reset(d, m)
	const flows = 100
	sent := flows * uint64(len(tcpPacket(0)))
	for round := range uint64(3) {
		now := uint64(1e12) + round*3e9 // longer than a silent flow keeps its slot
		for port := range flows {
			data := tcpPacket(0)
			binary.BigEndian.PutUint16(data[34:], uint16(port)+1000*uint16(round))
			send(t, d, m, &step{
				program: "pw_band", packet: bpftest.Packet{Data: data},
				clock: bpftest.Clock{ExactNS: now, CoarseNS: now},
			})
		}
		state := d.State()
		var listed uint64
		for _, h := range state.Heavy {
			if h.LastSeenNs == now {
				listed += h.Bytes
			}
		}
		unlisted := state.UnlistedHeavyBytes
		if listed < sent/8 || listed+unlisted != sent {
			t.Errorf("round %d: %d bytes are listed and %d are not, of %d", round, listed, unlisted, sent)
		}
		state.UnlistedHeavyBytes = 0
		d.WriteState(state)
	}
}

// Neighbour discovery goes first as long as it is small and takes a hundredth of
// the cap, whatever else is sent; more of it, or larger, is a flow.
func TestPrivilegedNeighbourDiscovery(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	d := bpftest.Load(t)
	f := &flood{program: "pw_class_probe", bits: 10e6, size: 1414, ports: 60000}
	m := f.direction()
	m.Config.SketchRate = sketchRate(f.bits, 1, 5)
	m.Config.FrameEst = uint32(cost(m.Config.SketchRate, 1514))
	for name, tt := range map[string]struct {
		size uint32
		// bits are offered each second, beside a flood if there is one.
		bits  float64
		flood bool
		// least and most are the shares of its packets that go first.
		least, most float64
	}{
		"little, beside a flood": {86, 60_000, true, 1, 1},
		"much":                   {86, 10e6, false, 0, 0.1},
		"large":                  {1414, 20e6, false, 0, 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.For(t)
			reset(d, m)
			own := &step{program: f.program, packet: bpftest.Packet{
				Data: bpftest.Corpus()["neighbour solicitation"], WireLen: tt.size,
			}}
			sent, first, at, next := 0, 0, 1e12, 1e12
			for i := 0; at < 1003e9 && !t.Failed(); i++ {
				clock := bpftest.Clock{ExactNS: uint64(at), CoarseNS: uint64(at)}
				if at >= next {
					own.clock = clock
					out, _ := send(t, d, m, own)
					sent++
					if out.ClassID == uint32(m.Config.LightClass) {
						first++
					}
					next += float64(tt.size) * 8e9 / tt.bits
				}
				if !tt.flood {
					at = next
					continue
				}
				send(t, d, m, &step{program: f.program, packet: f.packet(i), clock: clock})
				at += f.packetNS() / floodOverload
			}
			must.Within(t, fmt.Sprintf("part of %d packets that went first", sent), tt.least, tt.most, float64(first)/float64(sent))
		})
	}
}
