// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package attach_test

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

var (
	kernelPacing = shaping.Pacing{RTTLog: 9, MinSegments: 2}
	ownPacing    = shaping.Pacing{RTTLog: 0, MinSegments: 8}
)

// pacedWorld is a node whose kernel has the sysctls.
func pacedWorld(now shaping.Pacing) *world {
	w := newWorld()
	w.pacing = &now
	return w
}

// TCP in the pod sizes its packets by its pacing wherever podweir has a use for small packets,
// and as before elsewhere. The pod's device keeps what it had.
func TestPacingFollowsTheLimit(t *testing.T) {
	w := pacedWorld(kernelPacing)
	for _, step := range []struct {
		rate    units.BitRate
		queue   terms.Queue
		packets shaping.Packets
		exempt  []netip.Prefix
		want    shaping.Pacing
		gso     units.Bytes
	}{
		{rate: 100_000_000, want: ownPacing},
		{rate: 1_000_000_000, want: kernelPacing},
		{rate: 100_000_000, want: ownPacing},
		{rate: 10_000_000, want: kernelPacing, gso: 3_400},
		{rate: 100_000_000, want: ownPacing},
		{rate: 100_000_000, queue: terms.QueueNone, want: kernelPacing},
		{rate: 100_000_000, want: ownPacing},
		{rate: 100_000_000, packets: shaping.PacketsOff, want: kernelPacing},
		{rate: 100_000_000, packets: shaping.PacketsDevice, want: kernelPacing, gso: 6_400},
		{rate: 100_000_000, exempt: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, want: ownPacing},
	} {
		cfg := &shaping.Config{Egress: limit(step.rate), Unshaped: step.exempt}
		cfg.Egress.Queue, cfg.Egress.Packets = cmp.Or(step.queue, terms.QueueAuto), step.packets
		ensure(t, w, cfg)
		if *w.pacing != step.want {
			t.Errorf("with %+v: %v, want %v", step, w.pacing, step.want)
		}
		if got, want := w.devices[terms.SidePod].Offload.GSO, cmp.Or(step.gso, bigTCP.GSO); got != want {
			t.Errorf("with %+v: the device takes %v, want %v", step, got, want)
		}
	}
	if err := w.engine().Remove(t.Context(), podID); err != nil {
		t.Fatal(err)
	}
	if *w.pacing != kernelPacing {
		t.Errorf("after Remove: %v, want what was there before", w.pacing)
	}
}

// A release that bounded the pod's device left a record of it. Who comes after it sets the
// sysctls, and gives back what the device had.
func TestPacingInPlaceOfTheDevice(t *testing.T) {
	w := newWorld()
	cfg := &shaping.Config{Egress: limit(100_000_000)}
	ensure(t, w, cfg)
	if w.devices[terms.SidePod].Offload == bigTCP {
		t.Fatal("without the sysctls the device is not bounded, so nothing is tested")
	}
	w.pacing = new(kernelPacing)
	ensure(t, w, cfg)
	if got := w.devices[terms.SidePod].Offload; got != bigTCP || *w.pacing != ownPacing {
		t.Errorf("the device takes %v and the namespace has %v, want %v and %v", got, w.pacing, bigTCP, ownPacing)
	}
}

// What the pod's author chose stays, before and after podweir came, and is named. The kernel's
// own value is nobody's choice.
func TestPacingOfTheAuthor(t *testing.T) {
	const author = 12
	cfg := &shaping.Config{Egress: limit(100_000_000)}
	for name, first := range map[string]int{"before": author, "after": kernelPacing.RTTLog} {
		w := pacedWorld(shaping.Pacing{RTTLog: first, MinSegments: kernelPacing.MinSegments})
		ensure(t, w, cfg)
		w.pacing.RTTLog = author
		in, err := w.engine().Inspect(record(t, w))
		if err != nil || len(in.Plan) != 0 {
			t.Errorf("%s: the plan is %v, %v, want none", name, in.Plan, err)
		}
		if got := in.Want.Directions[terms.Egress].Params.Kept; !slices.Equal(got, []string{"net.ipv4.tcp_tso_rtt_log=12"}) {
			t.Errorf("%s: kept is %q, want the author's sysctl", name, got)
		}
		if err := w.engine().Remove(t.Context(), podID); err != nil {
			t.Fatal(err)
		}
		if want := (shaping.Pacing{RTTLog: author, MinSegments: kernelPacing.MinSegments}); *w.pacing != want {
			t.Errorf("%s: after Remove the namespace has %v, want %v", name, w.pacing, want)
		}
	}
	w := pacedWorld(kernelPacing)
	ensure(t, w, cfg)
	*w.pacing = kernelPacing
	in, err := w.engine().Inspect(record(t, w))
	if err != nil || len(in.Plan) != 1 || in.Plan[0].Kind != attach.PaceTCP {
		t.Errorf("with the kernel's values again the plan is %v, %v, want to pace TCP", in.Plan, err)
	}
}

// An author may have chosen what podweir would. It stays when the limit goes, unless podweir's
// queue without a record says that it was podweir.
func TestPacingOfTheAuthorAsPodweirs(t *testing.T) {
	w := pacedWorld(ownPacing)
	ensure(t, w, &shaping.Config{Egress: limit(100_000_000)})
	if err := w.engine().Remove(t.Context(), podID); err != nil {
		t.Fatal(err)
	}
	if *w.pacing != ownPacing {
		t.Errorf("the author's %v became %v", ownPacing, w.pacing)
	}
	w = pacedWorld(kernelPacing)
	ensure(t, w, &shaping.Config{Egress: limit(100_000_000)})
	clear(w.records)
	clear(w.dataplanes)
	ensure(t, w, &shaping.Config{Egress: limit(1_000_000_000)})
	if *w.pacing != kernelPacing {
		t.Errorf("after the record was lost and the limit raised: %v, want %v", w.pacing, kernelPacing)
	}
}

// Two limits in one namespace agree about it, and the last one gives back what was there before.
func TestPacingOfTwoInterfaces(t *testing.T) {
	now, first, second := kernelPacing, shaping.Pacing{}, shaping.Pacing{}
	for range 2 {
		now, first = now.Next(first, true)
		if now, second = now.Next(second, true); now != ownPacing {
			t.Errorf("with two limits the namespace has %v, want %v", now, ownPacing)
		}
	}
	now, _ = now.Next(first, false)
	if now, second = now.Next(second, true); now != ownPacing {
		t.Errorf("with one left: %v, want %v", now, ownPacing)
	}
	if now, _ = now.Next(second, false); now != kernelPacing {
		t.Errorf("without limits: %v, want %v", now, kernelPacing)
	}
}
