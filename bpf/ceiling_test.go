// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"math"
	"testing"
	"time"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/model"
	"github.com/podweir/podweir/plugin/terms"
)

// A packet that will be cut into segments of one byte is charged all headers of them, and
// the next one, which is refused, is not the end of that debt.
func TestPrivilegedCeilingOfSmallSegments(t *testing.T) {
	const bits, segments, headers = 10e6, 65000, 14 + 20 + 20
	d := bpftest.Load(t)
	m := newDirection(bits, terms.PolicyStrict)
	reset(d, m)
	p := model.Packet{Data: tcpPacket(0), GSOSize: 1, GSOSegs: segments}
	debt := time.Duration(float64(len(p.Data)+(segments-1)*headers) * 8e9 / (1.02 * bits))
	begin := uint64(1e12)
	for i, after := range []time.Duration{0, time.Second, 2 * time.Second} {
		now := begin + uint64(after)
		s := &step{program: "pw_ceiling", packet: p, clock: model.Clock{ExactNS: now, CoarseNS: now}}
		out, _ := both(t, d, m, s)
		if refused := out.Disposition == model.DropCeiling; refused != (i > 0) {
			t.Errorf("after %v the packet is %v", after, out.Disposition)
		}
		level := time.Duration((d.State().CeilingTat - now<<6) >> 6)
		if want := debt - after; math.Abs(float64(level-want)) > 0.005*float64(debt) {
			t.Errorf("after %v the ceiling is %v ahead, want %v", after, level, want)
		}
	}
}
