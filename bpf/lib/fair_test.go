// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

//go:build cgo

package lib

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// sender sends packets at a rate whatever becomes of them.
type sender struct {
	flow image.Flow
	// share of the cap that it offers, in packets of so many bytes; ecn is the
	// ECN field of its packets.
	share float64
	bytes uint32
	ecn   uint8
	// after is the share from the start on, if it is another.
	after float64
	// protocol, TCP if it is 0.
	protocol uint8
	// changes its flow with every packet.
	changes bool
	next    float64
	// sent, got and light are bytes after the start.
	sent, got, light float64
}

// senders is a heap by the time of the next packet.
type senders []*sender

func (s senders) Len() int           { return len(s) }
func (s senders) Less(i, j int) bool { return s[i].next < s[j].next }
func (s senders) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *senders) Push(x any)        { *s = append(*s, x.(*sender)) }
func (s *senders) Pop() any          { panic("nobody stops sending") }

// offer has all of them send until end, counts from start on, and returns how
// full the total meter was on average, in seconds.
func offer(d *direction, bits, start, end float64, all ...*sender) (waits float64) {
	random := rand.New(rand.NewPCG(1, 2))
	queue := make(senders, len(all))
	for i, s := range all {
		s.flow = flowOf(i)
		s.flow.Protocol = cmp.Or(s.protocol, s.flow.Protocol)
		s.next = random.Float64() / 100
		queue[i] = s
	}
	heap.Init(&queue)
	looks, flows := 0, len(all)
	for queue[0].next < end {
		s := queue[0]
		if s.changes {
			s.flow = flowOf(flows)
			flows++
		}
		setClock(since(s.next), random.Uint32())
		was := d.band(&image.Packet{Family: 4, Flow: s.flow, Tos: s.ecn}, s.bytes)
		light := was == image.Light
		passed := light || was == image.Paced || was == image.Marked
		if s.next >= start {
			s.share = cmp.Or(s.after, s.share)
			s.count(passed, light)
			waits += float64(level(d.State.TotalTat, since(s.next)<<meterShift)) / (1 << meterShift) / 1e9
			looks++
		}
		// Evenly but for a twentieth, as processes send.
		s.next += float64(s.bytes) * 8 / (s.share * bits) * (0.95 + random.Float64()/10)
		heap.Fix(&queue, 0)
	}
	return waits / float64(looks)
}

func (s *sender) count(passed, light bool) {
	s.sent += float64(s.bytes)
	if passed {
		s.got += float64(s.bytes)
	}
	if light {
		s.light += float64(s.bytes)
	}
}

func tick(nowNS uint64) uint32 { return uint32(nowNS >> tickShift) }

// share is what is fair, and setFair sets it as of a tick.
func (d *direction) share() uint32 { return uint32(d.State.Fair) & fairShare }

func (d *direction) setFair(share, tick uint32) {
	d.State.Fair = uint64(tick)<<32 | uint64(share)
}

// Whoever has more than the fair share is cut down to it, however much it offers; whoever has
// less loses nothing and goes first.
func TestFairShare(t *testing.T) {
	// At 1 Gbit/s a second has a hundred times as many packets.
	for bits, end := range map[float64]float64{10e6: 7, 100e6: 4, 1e9: 2.5} {
		const start = 2.0
		d := strictAt(bits)
		call := &sender{share: 0.15, bytes: 1200, protocol: protoUDP}
		bulk := []*sender{{share: 0.4, bytes: 1514}, {share: 0.8, bytes: 1514}, {share: 1.6, bytes: 1514}}
		offer(d, bits, start, end, append(bulk, call)...)
		if call.got != call.sent || call.light < 0.99*call.sent {
			t.Errorf("%.0e bit/s: the call lost %.2f %% and %.2f %% went first, want none and nearly all", bits,
				100*(1-call.got/call.sent), 100*call.light/call.sent)
		}
		fair := (1 - call.share) / float64(len(bulk))
		for _, b := range bulk {
			must.Within(t, fmt.Sprintf("%.0e bit/s: part of the cap for who offers %.1f of it", bits, b.share), 0.85*fair, 1.15*fair, b.got*8/bits/(end-start))
		}
	}
}

// elephantsAt has the settings of the policy elephants: flows of more than 5 % of the
// cap over a second or two are heavy, and wait up to 50 ms.
func elephantsAt(bits float64) *direction {
	d := strictAt(bits)
	c := &d.Config[0]
	c.Policy = uint8(terms.PolicyElephants)
	c.HalfLifeShift = 10
	c.SketchRate = image.Rate{Mult: c.FairRate.Mult / 32 * 20, Shift: c.FairRate.Shift}
	c.LightLeast, c.LightMost, c.FrameEst = estimateOne/5*4, estimateOne/5*4, 0
	c.TotalHorizon /= 4
	c.FairMost = c.TotalHorizon - c.TotalHorizon/8
	c.FairLeast = c.FairMost
	return d
}

// Under elephants heavy flows share the cap in the same way. A call that is heavy there, and
// has less than the share, loses nothing; what is light is not charged.
func TestElephantsShareTheCap(t *testing.T) {
	for bits, end := range map[float64]float64{10e6: 13, 100e6: 10} {
		const start = 7.0 // a call of 0.15 is heavy after 0.6 s, but the share comes to rest after that
		d := elephantsAt(bits)
		call := &sender{share: 0.15, bytes: 1200, protocol: protoUDP}
		light := &sender{share: 0.03, bytes: 300, protocol: protoUDP}
		bulk := []*sender{{share: 0.4, bytes: 1514}, {share: 0.8, bytes: 1514}, {share: 1.6, bytes: 1514}}
		level := offer(d, bits, start, end, append(bulk, call, light)...)
		if call.got != call.sent || call.light > 0 {
			t.Errorf("%.0e bit/s: the call lost %.2f %% and %.2f %% was light, want none of either", bits,
				100*(1-call.got/call.sent), 100*call.light/call.sent)
		}
		must.Be(t, fmt.Sprintf("%.0e bit/s: what was light of a flow of 3 %%", bits), light.sent, light.light)
		fair := (1 - call.share) / float64(len(bulk))
		for _, b := range bulk {
			must.Within(t, fmt.Sprintf("%.0e bit/s: part of the cap for who offers %.1f of it", bits, b.share), 0.75*fair, 1.25*fair, b.got*8/bits/(end-start))
		}
		// Burst and target are 54 ms; a band that drops only when it is full would have 60.
		must.AtMost(t, fmt.Sprintf("%.0e bit/s: seconds that the queue takes on average", bits), 0.057, level)
	}
}

// Offloaded packets of senders that try again at once bring the share down to far less than each of them gets. What
// begins then and has less than that is light all the same. Under elephants it is heavy after a while, and loses
// nothing there either.
func TestCallBesideRetries(t *testing.T) {
	for policy, d := range map[terms.Policy]*direction{terms.PolicyStrict: strictAt(10e6), terms.PolicyElephants: elephantsAt(10e6)} {
		const bits, start, end = 10e6, 2.0, 5.0
		call := &sender{share: 0.001, after: 0.1, bytes: 658, protocol: protoUDP}
		all := []*sender{call}
		for range 8 {
			all = append(all, &sender{share: 4, bytes: 65_000})
		}
		offer(d, bits, start, end, all...)
		must.AtMost(t, fmt.Sprintf("%v: the share, where senders try something", policy), estimateOne/20, d.share())
		must.Be(t, fmt.Sprintf("%v: what passed of the call", policy), call.sent, call.got)
		if policy == terms.PolicyStrict && call.light < 0.98*call.sent {
			t.Errorf("%.2f %% of the call went first, want nearly all", 100*call.light/call.sent)
		}
	}
}

// Flows of one packet each share what is left to them as if they were one, so that
// one that lasts keeps its share beside any number of them.
func TestFairShareBesideAFlood(t *testing.T) {
	const start, end = 2.0, 5.0
	for _, c := range []struct {
		bits, flood, share float64
		bytes, callBytes   uint32
	}{
		{100e6, 2, 0.03, 187, 417}, // 130,000 new flows a second
		{100e6, 2, 0.03, 187, 187},
		{10e6, 2, 0.03, 187, 187},
		{10e6, 5, 0.03, 187, 187},
	} {
		call := &sender{share: c.share, bytes: c.callBytes}
		offer(strictAt(c.bits), c.bits, start, end, call, &sender{share: c.flood, bytes: c.bytes, changes: true})
		if call.got < 0.995*call.sent || call.light < 0.99*call.sent {
			t.Errorf("%+v: the call lost %.2f %% and %.2f %% went first, want none and nearly all", c,
				100*(1-call.got/call.sent), 100*call.light/call.sent)
		}
	}
}

// Flows that together have less than the cap are left alone, whatever was fair
// before.
func TestFairShareWithoutCongestion(t *testing.T) {
	const bits, begin = 10e6, uint64(1000e9)
	d := strictAt(bits)
	d.setFair(fairLeast, tick(begin))
	a, b := &sender{share: 0.6, bytes: 1514}, &sender{share: 0.3, bytes: 1514}
	offer(d, bits, 0, 5, a, b)
	if a.got != a.sent || b.got != b.sent {
		t.Errorf("%.0f of %.0f and %.0f of %.0f bytes passed, want all", a.got, a.sent, b.got, b.sent)
	}
}

// A short queue alone does not make the share grow: nobody has as much.
func TestFairShareThatNobodyHas(t *testing.T) {
	const bits, begin, share = 10e6, uint64(1000e9), estimateOne / 8
	d := strictAt(bits)
	d.setFair(share, tick(begin))
	offer(d, bits, 0, 2, &sender{share: 0.05, bytes: 300}, &sender{share: 0.08, bytes: 300})
	must.Be(t, "share of the cap, which stays", share, d.share())
	offer(d, bits, 2, 4, &sender{share: 0.4, bytes: 1514})
	must.AtLeast(t, "the share beside a flow that has 0.4", estimateOne/4, d.share())
}

// What waits is what shall wait, within an eighth of it.
func TestQueueIsAsLongAsItShallBe(t *testing.T) {
	const bits = 100e6
	d := strictAt(bits)
	d.Config[0].Direction = uint8(terms.Ingress) // where the wait is soon as long as it becomes
	level := offer(d, bits, 2, 5, &sender{share: 0.7, bytes: 1514}, &sender{share: 0.9, bytes: 1514})
	aim := float64(d.Config[0].TotalBurst+d.wait()) / (1 << meterShift) / 1e9
	must.Within(t, "seconds that the meter is ahead", 0.875*aim, 1.125*aim, level)
}

// The more flows, the longer the queue; never beyond the most.
func TestWaitGrowsWithTheFlows(t *testing.T) {
	const bits = 100e6
	last := uint64(0)
	for _, flows := range []int{2, 32, 200} {
		d := strictAt(bits)
		var all []*sender
		for range flows {
			all = append(all, &sender{share: 3 / float64(flows), bytes: 1514, protocol: protoUDP})
		}
		offer(d, bits, 2, 4, all...)
		wait := d.wait()
		if wait < last || wait > d.Config[0].FairMost || wait < d.Config[0].FairLeast {
			t.Errorf("%d flows shall wait %d, after %d with fewer, want more, from %d to %d", flows, wait, last,
				d.Config[0].FairLeast, d.Config[0].FairMost)
		}
		last = wait
	}
	if least := strictAt(bits).Config[0].FairLeast; last <= least {
		t.Errorf("200 flows shall wait %d, want more than the least, %d", last, least)
	}
}

// A share that is far too small for a moment makes heavy packets wait longer for that moment. What losses add comes on
// top of that.
func TestWaitFollowsTheShare(t *testing.T) {
	d := strictAt(100e6)
	least, most := d.Config[0].FairLeast, d.Config[0].FairMost
	for _, tt := range []struct {
		share       uint32
		extra, want uint64
	}{
		{fairMost, 0, least},
		{fairLeast, 0, most},
		{fairMost, 1000, least + 1000},
		{estimateOne / 12, most / 16, most * 13 / 16},
		{fairMost, most, most},
	} {
		d.setFair(tt.share, 0)
		d.State.FairExtra = tt.extra
		if got := d.wait(); max(got, tt.want)-min(got, tt.want) > tt.want/1000 {
			t.Errorf("%+v: shall wait %d", tt, got)
		}
	}
}

// sentBulk is more than makes a flow bulk.
const sentBulk = 1 << 30

// Once a packet of TCP bulk was lost, those that find the queue empty make heavy packets wait longer, for 2.1 s and up
// to the most.
func TestWaitGrowsWhereTheQueueRunsEmpty(t *testing.T) {
	const bits, size, now = 100e6, 1514, 10_000
	for name, c := range map[string]struct {
		protocol uint8
		sent     uint64
		level    float64 // when it comes, of the burst
		after    uint32  // ticks since the loss
		packets  int
		want     float64 // how much longer the wait is, in packets
	}{
		"empty":          {protocol: protoTCP, sent: sentBulk, level: 0.2, after: 100, packets: 10, want: 5},
		"just in time":   {protocol: protoTCP, sent: sentBulk, after: fairCutTicks - 1, packets: 10, want: 5},
		"too late":       {protocol: protoTCP, sent: sentBulk, after: fairCutTicks, packets: 10},
		"not empty":      {protocol: protoTCP, sent: sentBulk, level: 0.3, after: 100, packets: 10},
		"not TCP":        {protocol: protoUDP, sent: sentBulk, after: 100, packets: 10},
		"short":          {protocol: protoTCP, sent: 800_000, after: 100, packets: 10},
		"up to the most": {protocol: protoTCP, sent: sentBulk, after: 100, packets: 4000, want: 2000},
	} {
		d := strictAt(bits)
		d.setFair(fairLeast, now)
		d.State.FairCut = uint64(now - c.after)
		want := min(uint64(c.want*float64(cost(d.Config[0].TotalRate, size))), d.Config[0].FairMost)
		setClock(now<<tickShift, 0)
		for range c.packets {
			p := &image.Packet{Level: uint64(c.level * float64(d.Config[0].TotalBurst)), Fair: d.share(), Listed: c.sent}
			p.Flow.Protocol = c.protocol
			d.excess(p, size)
		}
		must.Be(t, name+": longer wait", want, d.State.FairExtra)
	}
}

// What says that TCP was cut down is a drop or a mark.
func TestCutIsADropOrAMark(t *testing.T) {
	const now = 10_000
	setClock(now<<tickShift, math.MaxUint32)
	for _, ecn := range []uint8{0, 2} {
		d := strictAt(100e6)
		c := &d.Config[0]
		p := &image.Packet{
			Level: c.TotalBurst + c.FairLeast, Est: estimateOne, Fair: estimateOne * 3 / 4, Listed: sentBulk, Family: 4, Tos: ecn,
		}
		p.Flow.Protocol = protoTCP
		if d.excess(p, 1514); d.cut() != now {
			t.Errorf("ECN %d: cut in tick %d, want %d", ecn, d.cut(), now)
		}
	}
}

// cut is the tick in which TCP bulk last lost a packet for its share, or was marked.
func (d *direction) cut() uint32 { return uint32(d.State.FairCut) }

// A sender that would wait for a timer does not lose a packet that its part of the wait has room
// for, or half of what is left of the queue; and nothing happened to make the queue longer. A
// mark is no loss.
func TestIdleSenderKeepsATurn(t *testing.T) {
	const now, bits, fair = 10_000, 100e6, estimateOne / 8
	d := strictAt(bits)
	most := d.Config[0].TotalBurst + d.Config[0].FairMost
	bytesIn := func(time uint64) float64 { return float64(time) / (1 << meterShift) / 1e9 * bits / 8 }
	part := bytesIn(d.Config[0].FairLeast) / 8
	for name, c := range map[string]struct {
		idle  bool
		left  float64 // of the queue, bytes
		bytes float64
		ecn   uint8
		want  excess
	}{
		"not idle":       {bytes: part / 10, want: excessDrop},
		"a part":         {idle: true, bytes: part * 0.99, want: excessNone},
		"more":           {idle: true, bytes: part * 1.01, want: excessDrop},
		"half of room":   {idle: true, left: 4 * part, bytes: part * 1.99, want: excessNone},
		"more than half": {idle: true, left: 4 * part, bytes: part * 2.01, want: excessDrop},
		"ECN":            {idle: true, bytes: part / 10, ecn: 2, want: excessMark},
	} {
		d.setFair(fair, 0)
		d.State.FairCut, d.State.FairExtra = 0, 0
		setClock(now<<tickShift, math.MaxUint32)
		setSender(true, 1)
		if c.idle {
			setSender(true, 0)
		}
		bytes := uint32(c.bytes)
		p := &image.Packet{
			Fair: fair, Listed: sentBulk, Family: 4, Tos: c.ecn, Est: fair + uint32(cost(d.Config[0].FairRate, bytes)),
			Level: most - uint64(c.left/bits*8*1e9*(1<<meterShift)),
		}
		p.Flow.Protocol = protoTCP
		got := d.excess(p, bytes)
		if cut, longer := d.cut() == now, d.State.FairExtra > 0; got != c.want || cut != (c.want != excessNone) || longer != (c.want == excessDrop) {
			t.Errorf("%s, %d bytes: %d, cut %t, waits longer %t; want %d", name, bytes, got, cut, longer, c.want)
		}
	}
}

// Whoever asks for marks and ignores them has at most twice the share.
func TestMarksIgnored(t *testing.T) {
	const bits, start, end = 10e6, 2.0, 7.0
	deaf := &sender{share: 1.2, bytes: 1514, ecn: 2}
	other := &sender{share: 1.2, bytes: 1514}
	offer(strictAt(bits), bits, start, end, deaf, other)
	must.AtMost(t, "bytes of who ignores marks that passed, twice those of the other", 2*other.got, deaf.got)
}

// TCP that has to lose much for its share makes heavy packets wait longer, and once it loses less the wait
// fades. Nobody else makes them wait longer, nor TCP that leaves the pod and loses as much, nor connections that end
// before they are bulk.
func TestWaitGrowsWithWhatTCPLoses(t *testing.T) {
	const bits = 100e6
	for _, c := range []struct {
		protocol       uint8
		direction      terms.Direction
		share, seconds float64
		changes        bool
		from, to       float64 // of the most
	}{
		{protocol: protoTCP, direction: terms.Ingress, share: 0.6, seconds: 3, from: 0.875, to: 1},
		{protocol: protoTCP, direction: terms.Ingress, share: 0.52, seconds: 10, from: 0.4, to: 1},
		{protocol: protoTCP, direction: terms.Egress, share: 0.52, seconds: 10, from: 0, to: 0.01},
		{protocol: protoTCP, direction: terms.Egress, share: 1.6, seconds: 10, from: 0.875, to: 1},
		{protocol: protoUDP, direction: terms.Ingress, share: 1.6, seconds: 10},
		{protocol: protoTCP, direction: terms.Ingress, share: 1.6, seconds: 3, changes: true},
	} {
		d := strictAt(bits)
		d.Config[0].Direction = uint8(c.direction)
		most := d.Config[0].FairMost
		one := sender{share: c.share, bytes: 1514, protocol: c.protocol, changes: c.changes}
		other := one
		offer(d, bits, 0, c.seconds, &one, &other)
		must.Within(t, fmt.Sprintf("%+v: how much longer it shall wait, by the most", c), c.from, c.to, float64(d.State.FairExtra)/float64(most))
		last := uint32(d.State.Fair >> 32)
		for tick := last; tick < last+100_000; tick += 100 { // 105 s
			d.look(0, tick)
		}
		must.Be(t, fmt.Sprintf("%+v: longer wait after 105 s without a loss", c), 0, d.State.FairExtra)
	}
}

// Of large packets, each more than the share by itself, a flow may send its share. Sent as seldom as that they are
// more than it only in a narrow range, and less than two and a half times.
func TestLargePacketsSeldom(t *testing.T) {
	const bits = 10e6
	for offered, least := range map[float64]float64{0.1: 0.85, 0.12: 1, 0.15: 1, 0.18: 1, 0.2: 0, 0.22: 0, 0.25: 0, 0.3: 0, 0.5: 0} {
		d := strictAt(bits)
		large := sender{share: offered, bytes: 65_226}
		all, others := []*sender{&large}, 0.0
		for range 8 {
			all = append(all, &sender{share: 0.3, bytes: 1514})
		}
		offer(d, bits, 10, 60, all...)
		for _, s := range all[1:] {
			others += s.got / 8
		}
		must.Within(t, fmt.Sprintf("offers %v of the limit: what it gets by what others get", offered), least, 2.4, large.got/others)
	}
}

// Where the queue is full and a ninth of the cap is fair: one offloaded packet is no sign that marks are ignored; a packet
// that is more than the share by itself is not lost if its flow was silent before; and a connection that has sent little is
// not cut down to the share of bulk that makes the queue longer.
func TestWhoIsCutDown(t *testing.T) {
	d := strictAt(10e6)
	c := &d.Config[0]
	const kib, large, fair = 1 << 10, 65_226, uint32(estimateOne / 9)
	est := func(part float64) uint32 { return uint32(part * float64(fair)) }
	ofLarge := uint32(cost(c.FairRate, large))
	if ofLarge < 2*fair {
		t.Fatalf("the packet is %d, less than twice the share, %d", ofLarge, fair)
	}
	setClock(0, math.MaxUint32)
	for name, tc := range map[string]struct {
		p        image.Packet
		bytes    uint32
		protocol uint8
		want     excess
	}{
		"3 frames above twice the share": {image.Packet{Est: 2*fair + 3*c.FairFrameEst, Tos: 2}, 0, 0, excessMark},
		"5 frames above it":              {image.Packet{Est: 2*fair + 5*c.FairFrameEst, Tos: 2}, 0, 0, excessDrop},
		"large, after silence":           {image.Packet{Est: ofLarge}, large, 0, excessNone},
		"large, after little":            {image.Packet{Est: est(0.12) + ofLarge}, large, 0, excessNone},
		"large, after more":              {image.Packet{Est: est(0.13) + ofLarge}, large, 0, excessDrop},
		"large, after the share":         {image.Packet{Est: fair + ofLarge}, large, 0, excessDrop},
		"begins":                         {image.Packet{Est: est(1.9), Listed: 100 * kib, Extra: 1}, 0, protoTCP, excessNone},
		"has more than twice":            {image.Packet{Est: est(2.1), Listed: 100 * kib, Extra: 1}, 0, protoTCP, excessDrop},
		"what the share carries":         {image.Packet{Est: est(1.9), Listed: 300 * kib, Extra: 1}, 0, protoTCP, excessDrop},
		"less than that":                 {image.Packet{Est: est(1.9), Listed: 280 * kib, Extra: 1}, 0, protoTCP, excessNone},
		"bulk does not wait":             {image.Packet{Est: est(1.9), Listed: 100 * kib}, 0, protoTCP, excessDrop},
		"is not in the list":             {image.Packet{Est: est(1.9), Extra: 1}, 0, protoTCP, excessDrop},
		"does not slow down":             {image.Packet{Est: est(1.9), Listed: 100 * kib, Extra: 1}, 0, protoUDP, excessDrop},
	} {
		tc.p.Fair, tc.p.Level, tc.p.Family, tc.p.Flow.Protocol = fair, c.TotalBurst+c.FairMost, 4, tc.protocol
		must.Be(t, name, tc.want, d.draw(&tc.p, tc.bytes))
	}
}

// TCP that had its share and slowed down to a quarter of it or more stays heavy: let go it would overtake itself. With
// less than that, or another protocol, it goes first again after a second.
func TestSlowedTCPStaysHeavy(t *testing.T) {
	const bits, slows, end = 10e6, 2.0, 6.0
	for _, c := range []struct {
		protocol uint8
		after    float64
		stays    bool
	}{
		{protoTCP, 0.09, true},
		{protoTCP, 0.04, false},
		{protoUDP, 0.2, false},
	} {
		flow := &sender{share: 0.8, after: c.after, bytes: 1514, protocol: c.protocol}
		offer(strictAt(bits), bits, slows, end, flow, &sender{share: 0.8, bytes: 1514}, &sender{share: 0.8, bytes: 1514})
		if part := flow.light / flow.sent; c.stays != (part == 0) || !c.stays && part < 0.5 {
			t.Errorf("%+v: %.0f %% of its packets went first, want none if it stays heavy and else most", c, 100*part)
		}
	}
}

// After a pause nothing is known of what is fair.
func TestFairShareAfterAPause(t *testing.T) {
	d := strictAt(10e6)
	for _, tt := range []struct{ ticks, least, most uint32 }{{fairPause, 0, estimateOne/2 - 1}, {fairPause + 1, estimateOne, estimateOne}} {
		d.setFair(fairLeast, 5)
		d.look(0, 5+tt.ticks)
		must.Within(t, fmt.Sprintf("the share after %d ticks: all of the cap after a pause", tt.ticks), tt.least, tt.most, d.share())
	}
}

// A packet whose CPU read the clock before another CPU moved the share changes
// nothing, up to the skew of clocks; older than that is a pause.
func TestFairShareAtAnOlderTick(t *testing.T) {
	d := strictAt(10e6)
	for _, level := range []uint64{0, d.Config[0].TotalHorizon} {
		for _, later := range []uint32{1000, 1} { // ticks wrap
			d.setFair(estimateOne/8, later)
			was := d.State.Fair
			for _, behind := range []uint32{1, 4, tickSkew} {
				if d.look(level, later-behind); d.State.Fair != was {
					t.Errorf("%d ticks before tick %d the share becomes %#x, want %#x", behind, later, d.State.Fair, was)
				}
			}
			if d.look(level, later-tickSkew-1); d.share() != estimateOne {
				t.Errorf("%d ticks before tick %d the share becomes %d, want all of the cap", tickSkew+1, later, d.share())
			}
		}
	}
}

// Nor does one that measures how much light packets slow heavy ones down.
func TestSlowdownAtAnOlderTime(t *testing.T) {
	d := strictAt(10e6)
	d.State.WaitFactor, d.State.WaitBytes, d.State.WaitSince = 3*waitOne, 1000, 5e12
	d.State.Counts[image.Light].Bytes = 2000
	was := d.State
	if got := d.slowdown(was.WaitSince - 4e6); got != was.WaitFactor || d.State != was {
		t.Errorf("4 ms before the last measurement the factor is %d, and the state changes: %t; want %d", got, d.State != was, was.WaitFactor)
	}
}

// heavy sends a heavy packet of a flow that has a part of the share, where the queue is full.
func (d *direction) heavy(tick uint32, protocol uint8, part float64) {
	setClock(uint64(tick)<<tickShift, math.MaxUint32)
	c := &d.Config[0]
	p := &image.Packet{Fair: d.share(), Flood: uint32(d.State.Fair), Level: c.TotalBurst + c.FairMost, Est: uint32(part * float64(d.share()))}
	p.Flow.Protocol = protocol
	d.excess(p, 1514)
}

// While a flood loses packets, TCP may have one and a half times the share, and so may any other flow that has no more than
// that. A sender at its share is no flood.
func TestFloodBesideTCP(t *testing.T) {
	const now = 100_000
	d := strictAt(100e6)
	c := &d.Config[0]
	look := func(after uint32) (flooded bool) {
		d.look(c.TotalBurst, now+after)
		return d.State.Fair&fairFlooded != 0
	}
	d.setFair(estimateOne/2, now-1)
	if d.heavy(now, protoUDP, 1.1); look(0) {
		t.Error("a sender near its share is taken for a flood")
	}
	if d.heavy(now, protoUDP, 2); !look(1) || d.wait() < c.FairLeast {
		t.Errorf("a flood alone: a wait of %d, want a flood and at least %d", d.wait(), c.FairLeast)
	}
	for protocol, twice := range map[uint8]excess{protoUDP: excessDrop, protoTCP: excessNone} {
		for part, want := range map[float64]excess{1.45: excessNone, 1.55: excessDrop, 2: twice} {
			dice := uint32(math.MaxUint32)
			if part == 2 {
				dice = math.MaxUint32 / 8 * 5 // UDP loses a half of its packets, TCP a quarter
			}
			setClock(0, dice)
			p := &image.Packet{Fair: d.share(), Flood: uint32(d.State.Fair), Level: c.TotalBurst + c.FairMost, Est: uint32(part * float64(d.share()))}
			p.Flow.Protocol = protocol
			must.Be(t, fmt.Sprintf("protocol %d with %.2f of the share", protocol, part), want, d.draw(p, 1514))
		}
	}
	if look(300) {
		t.Error("0.3 s later there is a flood")
	}
}

// Beside a flood each packet of TCP makes the wait shorter if TCP has less than its share, and longer if it has that. After
// a loss TCP from elsewhere has a little less for some time, and nothing changes.
func TestWaitBesideAFlood(t *testing.T) {
	const now, half = 100_000, 1 << 63 // of the wait
	flooded := func(way terms.Direction, lost uint32) *direction {
		d := strictAt(100e6)
		d.Config[0].Direction = uint8(way)
		d.setFair(estimateOne/2, now)
		d.State.Fair |= fairFlooded
		d.State.FairExtra, d.State.FairCut = 1, half|uint64(now-lost)
		return d
	}
	for _, tt := range []struct {
		direction terms.Direction
		protocol  uint8
		part      float64 // of the share
		lost      uint32  // ticks ago
		shorter   int
	}{
		{terms.Ingress, protoTCP, 1.4, 3000, 1},
		{terms.Ingress, protoTCP, 1.6, 3000, -1},
		{terms.Ingress, protoTCP, 1.1, 2000, 0},
		{terms.Ingress, protoTCP, 0.9, 2000, 1},
		{terms.Ingress, protoTCP, 1.6, 2000, -1},
		{terms.Egress, protoTCP, 1.4, 2000, 1},
		{terms.Egress, protoTCP, 1.6, 2000, -1},
		{terms.Ingress, protoUDP, 0.7, 3000, 0},
	} {
		d := flooded(tt.direction, tt.lost)
		before := d.wait()
		d.heavy(now, tt.protocol, tt.part)
		must.Be(t, fmt.Sprintf("%+v: a shorter wait", tt), tt.shorter, cmp.Compare(before, d.wait()))
	}
	lossy := flooded(terms.Ingress, 3000)
	lossy.State.FairCut &^= half
	before := lossy.wait()
	lossy.State.FairExtra = lossy.Config[0].FairLeast / 2
	must.Be(t, "how much losses lengthen the wait of TCP that has its share", lossy.State.FairExtra-1, lossy.wait()-before)
	spare := flooded(terms.Egress, 3000)
	spare.State.FairCut |= 0xffff << 48
	spare.Config[0].FairEach *= 2
	before, spare.Config[0].FairSpare = spare.wait(), spare.Config[0].FairEach/2
	must.Within(t, "the wait of TCP with less than its share, where a half is spare", before/2, before*501/1000, spare.wait())
	alone := flooded(terms.Ingress, 3000)
	alone.State.Fair &^= fairFlooded
	before = alone.wait()
	if alone.heavy(now, protoTCP, 0.5); alone.wait() != before || before <= alone.Config[0].FairLeast {
		t.Errorf("without a flood: a wait of %d and then %d, want no change, and more than %d", before, alone.wait(), alone.Config[0].FairLeast)
	}
	for part, want := range map[float64]uint64{0.5: 0, 2: 1} {
		d := flooded(terms.Egress, 3000)
		for range 10_000 {
			d.heavy(now, protoTCP, part)
		}
		least := d.Config[0].FairLeast
		if got := d.wait(); got > least+1 || got < least*want || want == 0 && got > least/2 {
			t.Errorf("TCP with %v of the share: in the end a wait of %d of %d", part, got, least)
		}
	}
}
