// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"testing"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/plugin/terms"
)

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
				p := model.Packet{
					Data: bpftest.Build(data, append(tt.outer, inner...)...), GSOSize: payload, GSOSegs: segments,
				}
				clock := model.Clock{ExactNS: 1e12, CoarseNS: 1e12}
				out, ok := both(t, d, m, &step{program: "pw_police", packet: p, clock: clock})
				if !ok {
					t.Fatal("the kernel does not build the packet")
				}
				if want := tt.all + data + (segments-1)*headers; int(out.Bytes) != want {
					t.Errorf("with a last segment of %d bytes the policer counts %d bytes, want %d", last, out.Bytes, want)
				}
				both(t, d, m, &step{program: "pw_ceiling", packet: p, clock: clock})
				want := model.Cost(m.Config.CeilingRate, uint32(tt.all+data+(segments-1)*tt.known))
				if got := d.State().CeilingTat - 1e12<<6; got != want {
					t.Errorf("with a last segment of %d bytes the ceiling charges %d, want %d", last, got, want)
				}
			}
		})
	}
}
