// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"testing"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/mark"
)

// Under policing a flood that asks for marks and ignores them takes nothing from what
// is light: neither from a small flow, nor from ARP, which is light under flat, too.
func TestPrivilegedPolicingLeavesRoomForLight(t *testing.T) {
	mark.NightlyKernels(t, "it takes an emulated processor minutes")
	const bits, seconds, overload = 10e6, 2, 3
	d := bpftest.Load(t)
	packet := func(port uint16, ecn uint8, payload int) model.Packet {
		return model.Packet{Data: bpftest.Build(payload, bpftest.Ethernet(0x0800),
			bpftest.IPv4("10.0.0.1", "192.0.2.9", 17, ecn, 0, 0), bpftest.UDP(port, 443))}
	}
	flood := packet(1000, 2, 1472)
	arp, small := model.Packet{Data: bpftest.Corpus()["ARP"]}, packet(2000, 0, 58)
	for policy, light := range map[terms.Policy][]model.Packet{
		terms.PolicyStrict: {small, arp},
		terms.PolicyFlat:   {arp},
	} {
		t.Run(policy.String(), func(t *testing.T) {
			d := d.For(t)
			m := newDirection(bits, policy)
			reset(d, m)
			dropped, next := 0, 1e12
			for at := next; at < 1e12+seconds*1e9 && !t.Failed(); at += float64(len(flood.Data)) * 8e9 / bits / overload {
				clock := model.Clock{ExactNS: uint64(at), CoarseNS: uint64(at)}
				if out, _ := both(t, d, m, &step{program: "pw_police", packet: flood, clock: clock}); out.Disposition.Dropped() {
					dropped++
				}
				if at < next {
					continue
				}
				next += 1e8
				for i := range light {
					out, _ := both(t, d, m, &step{program: "pw_police", packet: light[i], clock: clock})
					if out.Disposition != model.Light {
						t.Errorf("after %.1f s a packet of %d bytes is %v, want %v", (at-1e12)/1e9, len(light[i].Data), out.Disposition, model.Light)
					}
				}
			}
			if dropped < 1000 {
				t.Errorf("%d packets of the flood were dropped, want 1000: it did not fill the meter", dropped)
			}
		})
	}
}
