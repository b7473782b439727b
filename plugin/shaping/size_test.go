// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

func burst(size units.Bytes) func(*shaping.Limit) { return func(l *shaping.Limit) { l.Burst = size } }

func horizon(d time.Duration) func(*shaping.Limit) { return func(l *shaping.Limit) { l.Horizon = d } }

func share(p units.PerMille) func(*shaping.Limit)  { return func(l *shaping.Limit) { l.LightShare = p } }
func mtu(f shaping.Facts, bytes int) shaping.Facts { f.MTU = bytes; return f }
func l3(f shaping.Facts) shaping.Facts             { f.L3Only = true; return f }
func compute(t *testing.T, l *shaping.Limit, f shaping.Facts) *shaping.Params {
	t.Helper()
	return must.Get(shaping.Compute(&shaping.Config{Egress: l}, terms.Egress, f, counter()))(t)
}

func TestComputeSizes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit        *shaping.Limit
		facts        shaping.Facts
		burst, depth units.Bytes
		wait         time.Duration
		note         string
	}{
		"1M: the floors": {
			limit: strict(1e6), facts: full, burst: 9_100, depth: 30_000, wait: 7920 * time.Millisecond,
			note: "burst 9.1 kB, 73ms of the cap: the least for an MTU of up to 9082",
		},
		"10M: the least bucket":  {limit: strict(10e6), facts: full, burst: 9_100, depth: 250_000, wait: 2552 * time.Millisecond},
		"1G without Ethernet":    {limit: strict(1e9), facts: l3(full), burst: 998_500, depth: 6_250_000, wait: 505520 * time.Microsecond},
		"54M: whole GSO packets": {limit: strict(54e6), facts: full, burst: 66_000, depth: 337_500, wait: 602222 * time.Microsecond},
		"below 54M they are cut": {limit: strict(53e6), facts: full, burst: 51_486, depth: 331_250, wait: 604151 * time.Microsecond},
		"1G":                     {limit: strict(1e9), facts: full, burst: 998_486, depth: 6_250_000, wait: 505520 * time.Microsecond},
		"400G":                   {limit: strict(400e9), facts: full, burst: 399_998_486, depth: 2_500_000_000, wait: 500014 * time.Microsecond},
		"jumbo frames":           {limit: strict(1e6), facts: mtu(full, 16_000), burst: 16_018, depth: 32_036, wait: 8082880 * time.Microsecond, note: "burst 16.018 kB, 128ms of the cap: the least for an MTU of up to 16000"},
		"requested, smaller":     {limit: strict(100e6, burst(20_000)), facts: full, burst: 18_486, depth: 625_000, wait: 555200 * time.Microsecond},
		"requested, too small": {
			limit: strict(100e6, burst(1)), facts: full, burst: 9_100, depth: 625_000, wait: 555200 * time.Microsecond,
			note: "burst 9.1 kB instead of 1 B: the least for an MTU of 1500",
		},
		"requested, larger": {limit: strict(10e6, burst(100_000)), facts: full, burst: 98_486, depth: 250_000, wait: 2552 * time.Millisecond},
		"a burst of minutes is no queue of minutes": {
			limit: strict(16e6, burst(units.MaxBurst)), facts: full, burst: units.MaxBurst - 1514, depth: 2_000_000, wait: 10345 * time.Millisecond,
		},
		"a burst that the kernel has no number for": {
			limit: strict(10e6, burst(units.MaxBurst)), facts: full, burst: 342_498_486, depth: 1_250_000, wait: 10552 * time.Millisecond,
			note: "burst 342.498486 MB instead of 500 MB: the kernel keeps a bucket of at most 4m34s of the cap",
		},
		"horizon": {limit: strict(10e6, horizon(time.Second)), facts: full, burst: 9_100, depth: 1_250_000, wait: 10552 * time.Millisecond},
		"the largest queue that the kernel can count": {
			limit: strict(400e9, horizon(time.Second)), facts: full, burst: 399_998_486, depth: math.MaxUint32, wait: 858993459 * time.Nanosecond,
		},
		"elephants wait for nobody": {
			limit: strict(10e6, elephants), facts: full, burst: 9_100, depth: 62_500, wait: 160_400 * time.Microsecond,
			note: "no egress ceiling: under elephants light flows have no limit",
		},
		"flat waits for nobody": {limit: strict(10e6, flat), facts: full, burst: 9_100, depth: 62_500, wait: 50 * time.Millisecond},
		"flat and a large MTU: a packet fits": {
			limit: strict(100e3, flat), facts: mtu(full, 65_535), burst: 65_553, depth: 65_553, wait: 5_244_240 * time.Microsecond,
			note: "burst 65.553 kB, 5.244s of the cap: the least for an MTU of up to 65535",
		},
		"half for light flows": {limit: strict(10e6, share(500)), facts: full, burst: 9_100, depth: 250_000, wait: 510400 * time.Microsecond},
		"credit of a policer": {
			limit: strict(10e6, queue(terms.QueueNone)), facts: full, burst: 312_500, note: "policing: the burst is a credit of 312.5 kB, so the cap does not hold within 1 % of any second",
		},
		"credit requested": {limit: strict(10e6, queue(terms.QueueNone), burst(1e6)), facts: full, burst: 1_000_000},
		"pfifo_fast": {
			limit: strict(10e6), facts: here, burst: 9_100, depth: 250_000, wait: 2552 * time.Millisecond,
			note: "pfifo_fast counts packets, not bytes: a meter limits the bytes that wait, and each band holds 256 packets",
		},
	} {
		p := compute(t, tc.limit, tc.facts)
		if p.BurstBytes != tc.burst || p.DepthBytes != tc.depth {
			t.Errorf("%s: burst, depth = %d, %d, want %d, %d", name, p.BurstBytes, p.DepthBytes, tc.burst, tc.depth)
		}
		// Rounded up from whole bytes: up to a byte's time too long.
		must.Within(t, name+": the longest wait", tc.wait-time.Microsecond, tc.wait+8*time.Microsecond, p.MaxWait)
		if all := strings.Join(p.Notes, "\n"); !strings.Contains(all, tc.note) || (tc.note == "" && p.CapHolds && all != "") {
			t.Errorf("%s: notes = %q, want %q", name, all, tc.note)
		}
		must.Be(t, name+": cap holds", p.Queue != terms.QueueNone, p.CapHolds)
	}
}

func TestComputeMeters(t *testing.T) {
	t.Parallel()
	const ms = uint64(64 * 1e6)
	band := compute(t, strict(10e6), here).Datapath
	if band.LightTolerance != 100*ms || band.TotalBurst != 64*7280000 || band.TotalHorizon != 200*ms {
		t.Errorf("band = %+v, want the horizon, the bucket and the depth in time", band)
	}
	slow := compute(t, strict(1e6), here).Datapath
	if slow.LightTolerance != 240*ms || slow.TotalHorizon != 240*ms {
		t.Errorf("band at 1M = %+v, want 30 kB in time", slow)
	}
	police := compute(t, strict(10e6, queue(terms.QueueNone)), here).Datapath
	if police.TotalBurst != 250*ms || police.TotalHorizon != 50*ms {
		t.Errorf("police = %+v, want the credit and the horizon", police)
	}
	ticking := full
	ticking.ClockTick = 4 * time.Millisecond
	must.Be(t, "credit by a clock of 4 ms", 246*ms, compute(t, strict(10e6, queue(terms.QueueNone)), ticking).Datapath.TotalBurst)
	must.Be(t, "burst under a shaper", 64*7280000, compute(t, strict(10e6), ticking).Datapath.TotalBurst)
	// A second is 953.7 ticks.
	if band.HoldTicks != 956 || police.HoldTicks != 956 {
		t.Errorf("hold = %d, %d ticks, want 956", band.HoldTicks, police.HoldTicks)
	}
	// 50 * 2^20 ns are 50 ticks and not one more.
	must.Be(t, "hold, in ticks", 52, compute(t, strict(1e9, flat, horizon(50<<20)), full).Datapath.HoldTicks)
	l3 := compute(t, strict(10e6), l3(full)).Datapath
	if band.L3Only != 0 || l3.L3Only == 0 || band.Policy != uint8(terms.PolicyStrict) || band.Direction != uint8(terms.Egress) {
		t.Errorf("datapath = %+v, want the device and the policy told", band)
	}
	for mode, cfg := range map[shaping.SubnetsMode]*shaping.Config{
		shaping.SubnetsNone:     {Egress: strict(10e6)},
		shaping.SubnetsUnshaped: {Egress: strict(10e6), Unshaped: exempt},
		shaping.SubnetsShaped:   {Egress: strict(10e6), Shaped: exempt},
	} {
		p, err := shaping.Compute(cfg, terms.Egress, here, counter())
		if err != nil || p.Datapath.SubnetsMode != uint8(mode) || p.Exempt != (mode != shaping.SubnetsNone) {
			t.Errorf("subnets mode = %+v, %v, want %d", p, err, mode)
		}
	}
}

// TestComputeInvariants goes over rates, policies, queues, MTUs and kernels.
func TestComputeInvariants(t *testing.T) {
	t.Parallel()
	rates := sampleRates()
	slices.Sort(rates)
	for _, facts := range []shaping.Facts{full, here, mtu(full, 576), mtu(here, 9000), mtu(l3(full), 65_535)} {
		for _, pol := range []terms.Policy{terms.PolicyStrict, terms.PolicyElephants, terms.PolicyFlat} {
			for _, q := range []terms.Queue{terms.QueueAuto, terms.QueueNone} {
				var last *shaping.Params
				for _, rate := range rates {
					l := strict(0, policy(pol), queue(q))
					l.Rate = rate
					p := compute(t, l, facts)
					checkInvariants(t, l, facts, p)
					if last != nil {
						checkMonotone(t, last, p)
					}
					last = p
				}
			}
		}
	}
}

func checkInvariants(t *testing.T, l *shaping.Limit, f shaping.Facts, p *shaping.Params) {
	t.Helper()
	what := fmt.Sprintf("%v %s %s mtu %d", l.Rate, p.Policy, p.Queue, f.MTU)
	ten := l.Rate.Bytes(10 * time.Millisecond)
	packet := units.Bytes(f.MTU) + 18
	switch p.Queue {
	case terms.QueueTBF:
		if p.BurstBytes < packet || p.BurstBytes < 9100 {
			t.Errorf("%s: burst %d loses packets", what, p.BurstBytes)
		}
		// Promise 2 with the default burst: the bucket and one packet are
		// 10 ms, except where the bucket is the least there can be.
		least := max(packet, 9100)
		if l.Rate >= 54e6 {
			least = max(least, 66_000)
		}
		must.AtMost(t, what+": burst", max(ten, least), p.BurstBytes)
		if p.DepthBytes < l.Rate.Bytes(l.Horizon) && p.DepthBytes != math.MaxUint32 {
			t.Errorf("%s: depth %d is below the horizon", what, p.DepthBytes)
		}
	case terms.QueueNone:
		if p.BurstBytes < l.Rate.Bytes(250*time.Millisecond) || p.CapHolds || p.Tree != nil {
			t.Errorf("%s: %+v, want a credit of 0.25 s and no promise", what, p)
		}
	default:
	}
	if p.Policy != terms.PolicyFlat {
		checkShares(t, what, p)
	}
	if p.Policy == terms.PolicyStrict {
		checkSketch(t, what, p)
	} else if held := time.Duration(p.Datapath.HoldTicks-2) << 20; held < p.MaxWait {
		t.Errorf("%s: held for %v, waits %v: a flow must stay heavy while a packet of it can wait", what, held, p.MaxWait)
	}
	if p.Tree != nil {
		checkTree(t, what, l, p)
	}
}

// checkShares: what is fair is a part of the cap, at every rate.
func checkShares(t *testing.T, what string, p *shaping.Params) {
	t.Helper()
	dp := &p.Datapath
	if dp.FairLeast == 0 || dp.FairLeast > dp.FairMost || dp.FairMost >= dp.TotalHorizon {
		t.Errorf("%s: heavy packets shall wait %d to %d, want some time within the depth, %d", what, dp.FairLeast, dp.FairMost, dp.TotalHorizon)
	}
	// From 2 Mbit/s on the half-life is the shortest, 34 ms, below 63 kbit/s the
	// longest, 1.07 s.
	want := map[bool]uint8{p.Rate < 62_000: 10, p.Rate >= 2_000_000: 5}[true]
	if got := dp.FairHalfLifeShift; want != 0 && got != want || got < 5 || got > 10 || dp.FairFrameEst == 0 {
		t.Errorf("%s: what tells the share halves in 2^%d ticks, want 2^%d; a frame is %d of it", what, got, want, dp.FairFrameEst)
	}
}

// checkSketch: under strict one estimate tells both light from heavy and the share.
func checkSketch(t *testing.T, what string, p *shaping.Params) {
	t.Helper()
	dp := &p.Datapath
	if dp.LightLeast == 0 || dp.LightLeast > dp.LightMost || dp.FrameEst == 0 {
		t.Errorf("%s: light up to %d, %d and a frame of %d, want them in order", what, dp.LightLeast, dp.LightMost, dp.FrameEst)
	}
	if dp.SketchRate != dp.FairRate || dp.HalfLifeShift != dp.FairHalfLifeShift || dp.FrameEst != dp.FairFrameEst {
		t.Errorf("%s: the sketch is not what tells the share", what)
	}
}

func checkTree(t *testing.T, what string, l *shaping.Limit, p *shaping.Params) {
	t.Helper()
	parents := map[shaping.TCHandle]bool{shaping.RootParent: true}
	shaped := uint64(0)
	// What the program answers without a configuration (PW_FALLBACK_CLASS).
	root := p.Tree.Qdiscs[0]
	capped := p.Tree.Filter == nil || root.Kind == shaping.KindTBF
	for _, c := range p.Tree.Classes {
		parents[c.Handle] = true
		if c.Parent != p.Tree.Qdiscs[0].Handle && !parents[c.Parent] {
			t.Errorf("%s: class %v has no parent", what, c.Handle)
		}
		must.AtLeast(t, what+": what class has at most, beside its rate", c.Rate, c.Ceil)
	}
	for _, q := range p.Tree.Qdiscs {
		if !parents[q.Parent] {
			t.Errorf("%s: %s %v has no parent before it", what, q.Kind, q.Handle)
		}
		for minor := shaping.TCHandle(1); minor <= shaping.TCHandle(q.Bands); minor++ {
			parents[q.Handle|minor] = true
		}
		if q.Kind == shaping.KindTBF {
			shaped++
			capped = capped || q.Parent == p.Tree.Filter.ClassID|2
			parents[q.Handle|1] = true
			if q.Rate != l.Rate.ByteRate() || q.Burst != p.BurstBytes {
				t.Errorf("%s: tbf %+v, want the cap and the burst", what, q)
			}
		}
		if q.Kind == shaping.KindBfifo && (q.Limit == 0 || q.Limit > math.MaxUint32) {
			t.Errorf("%s: bfifo %+v, want a limit that the kernel can count", what, q)
		}
	}
	if !capped {
		t.Errorf("%s: class 2 of the filter is not within the cap", what)
	}
	must.Be(t, what+": there is one tbf in the tree", p.Queue == terms.QueueTBF, shaped == 1)
}

// checkMonotone: more rate never means less burst, depth or cost per byte, as
// long as the queue and the half-life of the sketch are the same.
func checkMonotone(t *testing.T, slower, faster *shaping.Params) {
	t.Helper()
	if slower.Queue != faster.Queue {
		return
	}
	// From 54M on the bucket takes whole GSO packets.
	if faster.BurstBytes < slower.BurstBytes || faster.DepthBytes < slower.DepthBytes {
		t.Errorf("%v: burst %d depth %d, %v: %d %d, want no less", slower.Rate, slower.BurstBytes, slower.DepthBytes,
			faster.Rate, faster.BurstBytes, faster.DepthBytes)
	}
	for _, r := range [][2]image.Rate{
		{slower.Datapath.TotalRate, faster.Datapath.TotalRate},
		{slower.Datapath.LightRate, faster.Datapath.LightRate},
		{slower.Datapath.SketchRate, faster.Datapath.SketchRate},
	} {
		if r[0] == slower.Datapath.SketchRate && slower.Datapath.HalfLifeShift != faster.Datapath.HalfLifeShift {
			continue
		}
		if quotient(r[0]).Cmp(quotient(r[1])) < 0 {
			t.Errorf("%v: cost %+v, %v: %+v, want no more", slower.Rate, r[0], faster.Rate, r[1])
		}
	}
}

// What heavy packets shall wait at least, over the range of rates: 75 ms, but nearly all
// of the depth where 30 kB take longer, into a pod 250 kB at most, and never less than 10 ms.
// Out of a pod it is 94 kB at most, and never less than 7.5 ms, where the packets are small.
func TestComputeFairWait(t *testing.T) {
	t.Parallel()
	const ms = uint64(64 * 1e6)
	for rate, want := range map[int]struct{ in, out uint64 }{
		2e6:   {in: 120 * ms, out: 120 * ms},
		10e6:  {in: 75 * ms, out: 75 * ms},
		20e6:  {in: 75 * ms, out: 75 * ms / 2},
		50e6:  {in: 40 * ms, out: 15 * ms},
		100e6: {in: 20 * ms, out: 15 * ms / 2},
		1e9:   {in: 10 * ms, out: 10 * ms},
	} {
		in := must.Get(shaping.Compute(&shaping.Config{Ingress: strict(rate)}, terms.Ingress, full, counter()))(t)
		must.Be(t, fmt.Sprintf("%d bit/s into a pod", rate), want.in, in.Datapath.FairLeast)
		must.Be(t, fmt.Sprintf("%d bit/s out of a pod", rate), want.out, compute(t, strict(rate), here).Datapath.FairLeast)
	}
	for _, rate := range []int{10e3, 1e6} {
		dp := compute(t, strict(rate), here).Datapath
		must.Be(t, fmt.Sprintf("%d bit/s: the least, which is the most", rate), dp.FairMost, dp.FairLeast)
	}
}
