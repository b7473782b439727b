// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"cmp"
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
)

// sender sends packets at a rate whatever becomes of them.
type sender struct {
	flow Flow
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
func offer(d *Direction, bits, start, end float64, all ...*sender) (level float64) {
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
		now := uint64((1000 + s.next) * 1e9)
		w := &work{nowNS: now, clock: Clock{CoarseNS: now, ExactNS: now}, bytes: s.bytes}
		w.parsed.Family, w.parsed.Flow, w.parsed.TOS = 4, s.flow, s.ecn
		light := d.classify(w) == ClassLight
		passed := light
		if light {
			d.takeTotal(w)
		} else {
			passed = !d.wait(w, random.Uint32()).Dropped()
		}
		if s.next >= start {
			s.share = cmp.Or(s.after, s.share)
			s.count(passed, light)
			level += float64(d.Total.Level(now<<meterShift)) / (1 << meterShift) / 1e9
			looks++
		}
		// Evenly but for a twentieth, as processes send.
		s.next += float64(s.bytes) * 8 / (s.share * bits) * (0.95 + random.Float64()/10)
		heap.Fix(&queue, 0)
	}
	return level / float64(looks)
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
			if got := b.got * 8 / bits / (end - start); math.Abs(got/fair-1) > 0.15 {
				t.Errorf("%.0e bit/s: who offers %.1f of the cap gets %.3f of it, want %.3f within 15 %%", bits, b.share, got, fair)
			}
		}
	}
}

// elephantsAt has the settings of the policy elephants: flows of more than 5 % of the
// cap over a second or two are heavy, and wait up to 50 ms.
func elephantsAt(bits float64) *Direction {
	d := strictAt(bits)
	c := &d.Config
	c.Policy = terms.PolicyElephants
	c.HalfLifeShift = 10
	c.SketchRate = shaping.FixedRate{Mult: c.FairRate.Mult / 32 * 20, Shift: c.FairRate.Shift}
	c.LightLeast, c.LightMost, c.FrameEstimate = EstimateOne/5*4, EstimateOne/5*4, 0
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
		if light.light != light.sent {
			t.Errorf("%.0e bit/s: of a flow of 3 %% only %.2f was light", bits, light.light/light.sent)
		}
		fair := (1 - call.share) / float64(len(bulk))
		for _, b := range bulk {
			if got := b.got * 8 / bits / (end - start); math.Abs(got/fair-1) > 0.25 {
				t.Errorf("%.0e bit/s: who offers %.1f of the cap gets %.3f of it, want %.3f within a quarter", bits, b.share, got, fair)
			}
		}
		// Burst and target are 54 ms; a band that drops only when it is full would have 60.
		if most := 0.057; level > most {
			t.Errorf("%.0e bit/s: the queue takes %.3f s on average, want at most %.3f", bits, level, most)
		}
	}
}

// Offloaded packets of senders that try again at once bring the share down to far less than each of them gets. What
// begins then and has less than that is light all the same. Under elephants it is heavy after a while, and loses
// nothing there either.
func TestCallBesideRetries(t *testing.T) {
	for policy, d := range map[terms.Policy]*Direction{terms.PolicyStrict: strictAt(10e6), terms.PolicyElephants: elephantsAt(10e6)} {
		const bits, start, end = 10e6, 2.0, 5.0
		call := &sender{share: 0.001, after: 0.1, bytes: 658, protocol: protoUDP}
		all := []*sender{call}
		for range 8 {
			all = append(all, &sender{share: 4, bytes: 65_000})
		}
		offer(d, bits, start, end, all...)
		if least := uint32(EstimateOne / 20); d.Fair.Share > least {
			t.Errorf("%v: the share is %d, want at most %d: the senders try nothing", policy, d.Fair.Share, least)
		}
		if call.got != call.sent {
			t.Errorf("%v: the call lost %.2f %%, want none", policy, 100*(1-call.got/call.sent))
		}
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
	d.Fair = Fair{Share: fairLeast, Tick: uint32(begin >> TickShift)}
	a, b := &sender{share: 0.6, bytes: 1514}, &sender{share: 0.3, bytes: 1514}
	offer(d, bits, 0, 5, a, b)
	if a.got != a.sent || b.got != b.sent {
		t.Errorf("%.0f of %.0f and %.0f of %.0f bytes passed, want all", a.got, a.sent, b.got, b.sent)
	}
}

// A short queue alone does not make the share grow: nobody has as much.
func TestFairShareThatNobodyHas(t *testing.T) {
	const bits, begin, share = 10e6, uint64(1000e9), EstimateOne / 8
	d := strictAt(bits)
	d.Fair = Fair{Share: share, Tick: uint32(begin >> TickShift)}
	offer(d, bits, 0, 2, &sender{share: 0.05, bytes: 300}, &sender{share: 0.08, bytes: 300})
	if d.Fair.Share != share {
		t.Errorf("the share is %.3f of the cap, want still %.3f", float64(d.Fair.Share)/EstimateOne, float64(share)/EstimateOne)
	}
	offer(d, bits, 2, 4, &sender{share: 0.4, bytes: 1514})
	if d.Fair.Share < EstimateOne/4 {
		t.Errorf("the share is %.3f of the cap beside a flow that has 0.4, want a quarter", float64(d.Fair.Share)/EstimateOne)
	}
}

// What waits is what shall wait, within an eighth of it.
func TestQueueIsAsLongAsItShallBe(t *testing.T) {
	const bits = 100e6
	d := strictAt(bits)
	d.Config.Direction = terms.Ingress // where the wait is soon as long as it becomes
	level := offer(d, bits, 2, 5, &sender{share: 0.7, bytes: 1514}, &sender{share: 0.9, bytes: 1514})
	aim := float64(uint64(d.Config.TotalBurst)+d.Fair.wait(&d.Config)) / (1 << meterShift) / 1e9
	if math.Abs(level/aim-1) > 0.125 {
		t.Errorf("the meter is %.1f ms ahead, want %.1f", 1e3*level, 1e3*aim)
	}
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
		wait := d.Fair.wait(&d.Config)
		if wait < last || wait > uint64(d.Config.FairMost) || wait < uint64(d.Config.FairLeast) {
			t.Errorf("%d flows shall wait %d, after %d with fewer, want more, from %d to %d", flows, wait, last,
				d.Config.FairLeast, d.Config.FairMost)
		}
		last = wait
	}
	if least := uint64(strictAt(bits).Config.FairLeast); last <= least {
		t.Errorf("200 flows shall wait %d, want more than the least, %d", last, least)
	}
}

// A share that is far too small for a moment makes heavy packets wait longer for that moment. What losses add comes on
// top of that.
func TestWaitFollowsTheShare(t *testing.T) {
	c := &strictAt(100e6).Config
	least, most := uint64(c.FairLeast), uint64(c.FairMost)
	for f, want := range map[Fair]uint64{
		{Share: fairMost}:                           least,
		{Share: fairLeast}:                          most,
		{Share: fairMost, Extra: 1000}:              least + 1000,
		{Share: EstimateOne / 12, Extra: most / 16}: most * 13 / 16,
		{Share: fairMost, Extra: most}:              most,
	} {
		if got := f.wait(c); max(got, want)-min(got, want) > want/1000 {
			t.Errorf("%+v: shall wait %d, want %d", f, got, want)
		}
	}
}

// sentBulk is more than makes a flow bulk.
const sentBulk = 1 << 30

// Once a packet of TCP bulk was lost, those that find the queue empty make heavy packets wait longer, for 2.1 s and up
// to the most.
func TestWaitGrowsWhereTheQueueRunsEmpty(t *testing.T) {
	const bits, size, tick = 100e6, 1514, 10_000
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
		d.Fair.Cut = tick - c.after
		want := min(uint64(c.want*float64(Cost(d.Config.TotalRate, size))), uint64(d.Config.FairMost))
		for range c.packets {
			w := &work{
				bytes: size, nowNS: tick << TickShift, before: uint64(c.level * float64(d.Config.TotalBurst)), fair: d.Fair,
				listed: c.sent,
			}
			w.parsed.Flow.Protocol = c.protocol
			d.excess(w, 0)
		}
		if d.Fair.Extra != want {
			t.Errorf("%s: shall wait %d longer, want %d", name, d.Fair.Extra, want)
		}
	}
}

// What says that TCP was cut down is a drop or a mark.
func TestCutIsADropOrAMark(t *testing.T) {
	const tick = 10_000
	for _, ecn := range []uint8{0, 2} {
		d := strictAt(100e6)
		w := &work{
			bytes: 1514, nowNS: tick << TickShift, before: uint64(d.Config.TotalBurst + d.Config.FairLeast),
			est: EstimateOne, fair: Fair{Share: EstimateOne * 3 / 4}, listed: sentBulk,
		}
		w.parsed.Flow.Protocol, w.parsed.Family, w.parsed.TOS = protoTCP, 4, ecn
		if d.excess(w, math.MaxUint32); d.Fair.Cut != tick {
			t.Errorf("ECN %d: cut in tick %d, want %d", ecn, d.Fair.Cut, tick)
		}
	}
}

// A sender that would wait for a timer does not lose a packet that its part of the wait has room
// for, or half of what is left of the queue; and nothing happened to make the queue longer. A
// mark is no loss.
func TestIdleSenderKeepsATurn(t *testing.T) {
	const tick, bits, fair = 10_000, 100e6, EstimateOne / 8
	d := strictAt(bits)
	most := uint64(d.Config.TotalBurst + d.Config.FairMost)
	bytesIn := func(time uint64) float64 { return float64(time) / (1 << meterShift) / 1e9 * bits / 8 }
	part := bytesIn(uint64(d.Config.FairLeast)) / 8
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
		d.Fair = Fair{Share: fair}
		w := &work{
			nowNS: tick << TickShift, fair: d.Fair, bytes: uint32(c.bytes), listed: sentBulk, sender: &Sender{Out: 1},
			before: most - uint64(c.left/bits*8*1e9*(1<<meterShift)),
		}
		if c.idle {
			w.sender = &Sender{}
		}
		w.est = fair + uint32(Cost(d.Config.FairRate, w.bytes))
		w.parsed.Flow.Protocol, w.parsed.Family, w.parsed.TOS = protoTCP, 4, c.ecn
		got := d.excess(w, math.MaxUint32)
		if cut, longer := d.Fair.Cut == tick, d.Fair.Extra > 0; got != c.want || cut != (c.want != excessNone) || longer != (c.want == excessDrop) {
			t.Errorf("%s, %d bytes: %d, cut %t, waits longer %t; want %d", name, w.bytes, got, cut, longer, c.want)
		}
	}
}

// Whoever asks for marks and ignores them has at most twice the share.
func TestMarksIgnored(t *testing.T) {
	const bits, start, end = 10e6, 2.0, 7.0
	deaf := &sender{share: 1.2, bytes: 1514, ecn: 2}
	other := &sender{share: 1.2, bytes: 1514}
	offer(strictAt(bits), bits, start, end, deaf, other)
	if deaf.got > 2*other.got {
		t.Errorf("%.0f bytes of who ignores marks passed, and %.0f of the other, want at most twice as many", deaf.got, other.got)
	}
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
		d.Config.Direction = c.direction
		most := uint64(d.Config.FairMost)
		one := sender{share: c.share, bytes: 1514, protocol: c.protocol, changes: c.changes}
		other := one
		offer(d, bits, 0, c.seconds, &one, &other)
		if part := float64(d.Fair.Extra) / float64(most); part < c.from || part > c.to {
			t.Errorf("%+v: shall wait %d longer, which is %.3f of %d", c, d.Fair.Extra, part, most)
		}
		f := d.Fair
		for tick := f.Tick; tick < f.Tick+100_000; tick += 100 { // 105 s
			d.Fair.look(&d.Config, 0, tick)
		}
		if d.Fair.Extra != 0 {
			t.Errorf("%+v: after 105 s without a loss shall still wait %d longer", c, d.Fair.Extra)
		}
	}
}

// One offloaded packet is no sign that marks are ignored.
func TestMarksOnLargePackets(t *testing.T) {
	c := &strictAt(10e6).Config
	fair := uint32(EstimateOne / 9)
	for frames, want := range map[uint32]excess{3: excessMark, 5: excessDrop} {
		w := &work{fair: Fair{Share: fair}, before: uint64(c.TotalBurst + c.FairMost), est: 2*fair + frames*c.FairFrameEstimate}
		w.parsed.Family, w.parsed.TOS = 4, 2
		if got := draw(c, w, math.MaxUint32); got != want {
			t.Errorf("%d frames above twice the share: %d, want %d", frames, got, want)
		}
	}
}

// A packet that is more than the share by itself is not lost if its flow was silent before.
func TestLargePacketAfterSilence(t *testing.T) {
	c := &strictAt(10e6).Config
	fair := uint32(EstimateOne / 9)
	for part, want := range map[float64]excess{0: excessNone, 0.12: excessNone, 0.13: excessDrop, 1: excessDrop} {
		w := &work{fair: Fair{Share: fair}, before: uint64(c.TotalBurst + c.FairMost), bytes: 65_226}
		w.est = uint32(part*float64(fair)) + uint32(Cost(c.FairRate, w.bytes))
		if w.est < 2*fair {
			t.Fatalf("the packet is %d, less than twice the share, %d", w.est, fair)
		}
		if got := draw(c, w, math.MaxUint32); got != want {
			t.Errorf("%v of the share before the packet: %d, want %d", part, got, want)
		}
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
		if part := large.got / others; part < least || part > 2.4 {
			t.Errorf("offers %v of the limit and gets %.2f of what others get, want %v to 2.4", offered, part, least)
		}
	}
}

// A connection that has sent little is not cut down to the share of bulk that makes the queue longer.
func TestBeginningBesideBulk(t *testing.T) {
	c := &strictAt(10e6).Config
	const kib = 1 << 10
	fair := uint32(EstimateOne / 9)
	for name, tc := range map[string]struct {
		protocol uint8
		sent     uint64
		extra    uint64
		part     float64
		want     excess
	}{
		"begins":                 {protoTCP, 100 * kib, 1, 1.9, excessNone},
		"has more than twice":    {protoTCP, 100 * kib, 1, 2.1, excessDrop},
		"what the share carries": {protoTCP, 300 * kib, 1, 1.9, excessDrop},
		"less than that":         {protoTCP, 280 * kib, 1, 1.9, excessNone},
		"bulk does not wait":     {protoTCP, 100 * kib, 0, 1.9, excessDrop},
		"is not in the list":     {protoTCP, 0, 1, 1.9, excessDrop},
		"does not slow down":     {protoUDP, 100 * kib, 1, 1.9, excessDrop},
	} {
		w := &work{
			fair: Fair{Share: fair, Extra: tc.extra}, before: uint64(c.TotalBurst + c.FairMost),
			est: uint32(tc.part * float64(fair)), listed: tc.sent,
		}
		w.parsed.Flow.Protocol = tc.protocol
		if got := draw(c, w, math.MaxUint32); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
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
	f := Fair{Share: fairLeast, Tick: 5}
	f.look(&d.Config, 0, 5+fairPause)
	if f.Share >= EstimateOne/2 {
		t.Errorf("the share is %d after %d ticks, want still a small one", f.Share, fairPause)
	}
	f = Fair{Share: fairLeast, Tick: 5}
	if f.look(&d.Config, 0, 5+fairPause+1); f.Share != EstimateOne {
		t.Errorf("the share is %d after a pause, want all of the cap, %d", f.Share, EstimateOne)
	}
}

// A packet whose CPU read the clock before another CPU moved the share changes
// nothing, up to the skew of clocks; older than that is a pause.
func TestFairShareAtAnOlderTick(t *testing.T) {
	d := strictAt(10e6)
	for _, level := range []uint64{0, uint64(d.Config.TotalHorizon)} {
		for _, later := range []uint32{1000, 1} { // ticks wrap
			was := Fair{Share: EstimateOne / 8, Tick: later}
			for _, behind := range []uint32{1, 4, TickSkew} {
				f := was
				if f.look(&d.Config, level, later-behind); f != was {
					t.Errorf("%d ticks before tick %d the share becomes %+v, want %+v", behind, later, f, was)
				}
			}
			f := was
			if f.look(&d.Config, level, later-TickSkew-1); f.Share != EstimateOne {
				t.Errorf("%d ticks before tick %d the share becomes %+v, want all of the cap", TickSkew+1, later, f)
			}
		}
	}
}

// Nor does one that measures how much light packets slow heavy ones down.
func TestSlowdownAtAnOlderTime(t *testing.T) {
	d := strictAt(10e6)
	d.Waits = Waits{Factor: 3 * waitOne, Bytes: 1000, SinceNS: 5e12}
	d.LightBytes = 2000
	was := d.Waits
	if got := d.lightSlowdown(was.SinceNS - 4e6); got != was.Factor || d.Waits != was {
		t.Errorf("4 ms before the last measurement the factor is %d and %+v is kept, want %d and %+v", got, d.Waits, was.Factor, was)
	}
}

// Beside a flood that loses packets the queue is as long as what TCP of this node has in it, for a moment, and TCP may
// have half of the share more. Without such TCP the queue stays as it is, and a sender at its share is no flood.
func TestFloodBesideTCP(t *testing.T) {
	const tick = 100_000
	d := strictAt(100e6)
	c := &d.Config
	packet := func(protocol uint8, part float64, sender *Sender) {
		w := &work{nowNS: tick << TickShift, fair: d.Fair, bytes: 1514, before: uint64(c.TotalBurst + c.FairMost), sender: sender}
		w.est, w.parsed.Flow.Protocol = uint32(part*float64(d.Fair.Share)), protocol
		d.excess(w, math.MaxUint32)
	}
	look := func(after uint32) { d.Fair.look(c, uint64(c.TotalBurst), tick+after) }
	d.Fair = Fair{Share: EstimateOne / 2, Tick: tick - 1}
	packet(protoUDP, 1.1, nil)
	if look(0); d.Fair.Flooded {
		t.Error("a sender near its share is taken for a flood")
	}
	packet(protoUDP, 2, nil)
	if look(1); !d.Fair.Flooded || d.Fair.Beside || d.Fair.wait(c) < uint64(c.FairLeast) {
		t.Errorf("a flood alone: %+v, a wait of %d, want a flood and at least %d", d.Fair, d.Fair.wait(c), c.FairLeast)
	}
	packet(protoTCP, 0.5, &Sender{Out: 4})
	if look(2); !d.Fair.Beside || d.Fair.wait(c) >= uint64(c.FairLeast) {
		t.Errorf("beside TCP of this node: %+v, a wait of %d, want less than %d", d.Fair, d.Fair.wait(c), c.FairLeast)
	}
	w := &work{fair: d.Fair}
	for protocol, part := range map[uint8]uint64{protoUDP: 2, protoTCP: 3} {
		if w.parsed.Flow.Protocol = protocol; w.fairShare(c) != uint64(d.Fair.Share)*part/2 {
			t.Errorf("protocol %d may have %d of a share of %d, want %d halves of it", protocol, w.fairShare(c), d.Fair.Share, part)
		}
	}
	if look(300); d.Fair.Flooded || d.Fair.Beside {
		t.Errorf("0.3 s later: %+v, want neither", d.Fair)
	}
}
