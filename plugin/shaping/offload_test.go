// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"net/netip"
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// The largest packets of TCP in the pod: what the limit carries in half a millisecond, in
// segments, but two at least; and where podweir does not bound them, as where some packets bypass
// the limit.
func TestComputeOffload(t *testing.T) {
	t.Parallel()
	jumbo := here
	jumbo.MTU = 9000
	paced := here
	paced.Pacing = true
	network := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for name, tt := range map[string]struct {
		limit *shaping.Limit
		facts shaping.Facts
		want  units.Bytes
		paced bool
		given shaping.Config
	}{
		"slow":          {limit: strict(10e3), facts: here, want: 3_400},
		"10 Mbit/s":     {limit: strict(10e6), facts: here, want: 3_400},
		"100 Mbit/s":    {limit: strict(100e6), facts: here, want: 6_400},
		"500 Mbit/s":    {limit: strict(500e6), facts: here, want: 30_400},
		"1 Gbit/s":      {limit: strict(1e9), facts: here},
		"jumbo frames":  {limit: strict(100e6), facts: jumbo, want: 18_400},
		"paced":         {limit: strict(100e6), facts: paced, paced: true},
		"low, pacing":   {limit: strict(49e6), facts: paced, want: 3_400},
		"high, pacing":  {limit: strict(1e9), facts: paced},
		"by device":     {limit: strict(100e6, func(l *shaping.Limit) { l.Packets = shaping.PacketsDevice }), facts: paced, want: 6_400},
		"off":           {limit: strict(100e6, func(l *shaping.Limit) { l.Packets = shaping.PacketsOff }), facts: paced},
		"exempt, paced": {limit: strict(100e6), facts: paced, paced: true, given: shaping.Config{Unshaped: network}},
		"no MTU":        {limit: strict(10e6), facts: shaping.Facts{TBF: true}},
		"elephants":     {limit: strict(10e6, func(l *shaping.Limit) { l.Policy = terms.PolicyElephants }), facts: here},
		"exempt":        {limit: strict(10e6), facts: here, given: shaping.Config{Unshaped: network}},
		"exempt, htb":   {limit: strict(10e6, func(l *shaping.Limit) { l.Queue = terms.QueueHTB }), facts: full, given: shaping.Config{Unshaped: network}},
		"others":        {limit: strict(10e6), facts: here, given: shaping.Config{Shaped: network}},
		"htb":           {limit: strict(10e6, func(l *shaping.Limit) { l.Queue = terms.QueueHTB }), facts: full, want: 3_400},
		"one band":      {limit: strict(10e6, func(l *shaping.Limit) { l.Policy = terms.PolicyFlat }), facts: here},
		"no queue":      {limit: strict(10e6, func(l *shaping.Limit) { l.Queue = terms.QueueNone }), facts: here},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.given.Egress = tt.limit
			p, err := shaping.Compute(&tt.given, terms.Egress, tt.facts, counter())
			if err != nil {
				t.Fatal(err)
			}
			if p.OffloadBytes != tt.want || p.Paced != tt.paced {
				t.Errorf("packets of up to %v, paced %v, want %v, %v", p.OffloadBytes, p.Paced, tt.want, tt.paced)
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
