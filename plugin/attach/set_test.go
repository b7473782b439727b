// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"cmp"
	"net/netip"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// What `set` changed lasts until what is requested changes; how a mistake in it is
// told is no change.
func TestSetOutlivesNotes(t *testing.T) {
	w := newWorld()
	cfg := func(notes ...string) *shaping.Config { return &shaping.Config{Egress: limit(10_000_000), Notes: notes} }
	ensure(t, w, cfg("told by ADD"))
	if _, err := w.engine().Set(t.Context(), podID, func(c *shaping.Config) error { c.Egress.Rate = 5_000_000; return nil }); err != nil {
		t.Fatal(err)
	}
	ensure(t, w, cfg("told by the agent"))
	if got := record(t, w).Config.Egress.Rate; got != 5_000_000 {
		t.Errorf("after another note the rate is %v, want what was set", got)
	}
	changed := cfg("told by the agent")
	changed.Egress.Rate = 20_000_000
	ensure(t, w, changed)
	if got := record(t, w).Config.Egress.Rate; got != 20_000_000 {
		t.Errorf("after another wish the rate is %v, want that", got)
	}
}

// A release that bounded the packets of a pod with exempt networks left a record of it. Who
// comes after it gives back what the device had.
func TestOffloadOfFormerRelease(t *testing.T) {
	w := newWorld()
	cfg := &shaping.Config{Egress: limit(10_000_000), Unshaped: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	ensure(t, w, cfg)
	r := record(t, w)
	choice := r.Choices[terms.Egress]
	choice.Offload = &bigTCP
	r.Choices[terms.Egress] = choice
	if err := w.Write(r); err != nil {
		t.Fatal(err)
	}
	w.devices[terms.SidePod].Offload = attach.Offload{GSO: 3_400, GSOIPv4: 3_400}
	ensure(t, w, cfg)
	if got := w.devices[terms.SidePod].Offload; got != bigTCP {
		t.Errorf("TCP makes packets of up to %v, want %v as before podweir", got, bigTCP)
	}
}

// The pod's device has what it had before whenever podweir has no use for less, and never
// more than that.
func TestOffloadFollowsTheLimit(t *testing.T) {
	small := attach.Offload{GSO: 5_000}
	for _, before := range []attach.Offload{bigTCP, small} {
		w := newWorld()
		w.devices[terms.SidePod].Offload = before
		for _, step := range []struct {
			rate   units.BitRate
			queue  terms.Queue
			policy terms.Policy
			exempt []netip.Prefix
			most   units.Bytes
		}{
			{rate: 10_000_000, most: 3_400},
			{rate: 10_000_000, exempt: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, most: bigTCP.GSO},
			{rate: 10_000_000, most: 3_400},
			{rate: 10_000_000, policy: terms.PolicyElephants, most: bigTCP.GSO},
			{rate: 100_000_000, most: 6_400},
			{rate: 1_000_000_000, most: bigTCP.GSO},
			{rate: 100_000_000, most: 6_400},
			{rate: 100_000_000, queue: terms.QueueNone, most: bigTCP.GSO},
			{rate: 10_000_000, most: 3_400},
		} {
			cfg := &shaping.Config{Egress: limit(10_000_000), Unshaped: step.exempt}
			cfg.Egress.Rate, cfg.Egress.Queue = step.rate, cmp.Or(step.queue, terms.QueueAuto)
			cfg.Egress.Policy = cmp.Or(step.policy, terms.PolicyStrict)
			ensure(t, w, cfg)
			want := attach.Offload{GSO: min(before.GSO, step.most), GSOIPv4: min(before.GSOIPv4, step.most)}
			if got := w.devices[terms.SidePod].Offload; got != want {
				t.Errorf("from %v with %+v: %v, want %v", before, step, got, want)
			}
		}
		if err := w.engine().Remove(t.Context(), podID); err != nil {
			t.Fatal(err)
		}
		if got := w.devices[terms.SidePod].Offload; got != before {
			t.Errorf("after Remove: %v, want %v", got, before)
		}
	}
}
