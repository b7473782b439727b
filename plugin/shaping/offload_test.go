// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// The largest packets of TCP in the pod: what the limit carries in half a millisecond, in
// segments, but two at least; and where podweir does not bound them.
func TestComputeOffload(t *testing.T) {
	t.Parallel()
	jumbo := here
	jumbo.MTU = 9000
	for name, tt := range map[string]struct {
		limit *shaping.Limit
		facts shaping.Facts
		want  units.Bytes
	}{
		"slow":         {strict(10e3), here, 3_400},
		"10 Mbit/s":    {strict(10e6), here, 3_400},
		"100 Mbit/s":   {strict(100e6), here, 6_400},
		"500 Mbit/s":   {strict(500e6), here, 30_400},
		"1 Gbit/s":     {strict(1e9), here, 0},
		"jumbo frames": {strict(100e6), jumbo, 18_400},
		"no MTU":       {strict(10e6), shaping.Facts{TBF: true}, 0},
		"elephants":    {strict(10e6, func(l *shaping.Limit) { l.Policy = terms.PolicyElephants }), here, 3_400},
		"htb":          {strict(10e6, func(l *shaping.Limit) { l.Queue = terms.QueueHTB }), full, 3_400},
		"one band":     {strict(10e6, func(l *shaping.Limit) { l.Policy = terms.PolicyFlat }), here, 0},
		"no queue":     {strict(10e6, func(l *shaping.Limit) { l.Queue = terms.QueueNone }), here, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := shaping.Compute(&shaping.Config{Egress: tt.limit}, terms.Egress, tt.facts, counter())
			if err != nil {
				t.Fatal(err)
			}
			if p.OffloadBytes != tt.want {
				t.Errorf("packets of up to %v, want %v", p.OffloadBytes, tt.want)
			}
		})
	}
	in, err := shaping.Compute(&shaping.Config{Ingress: strict(10e6)}, terms.Ingress, here, counter())
	if err != nil {
		t.Fatal(err)
	}
	if in.OffloadBytes != 0 {
		t.Errorf("into a pod: packets of up to %v, want no bound: senders are elsewhere", in.OffloadBytes)
	}
}
