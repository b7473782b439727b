// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/podweir/podweir/plugin/shaping"
)

// exactDecay is what Decay approximates, with a half-life of a second.
func exactDecay(est float64, ticks float64) float64 {
	return est * math.Exp2(-ticks/halfLife)
}

// The longest half-life.
const (
	shift    = 10
	halfLife = 1 << shift
)

func TestDecayIsExponential(t *testing.T) {
	const est = 1 << 30
	for since := range uint32(8 * halfLife) {
		got, want := float64(Decay(est, since, shift)), exactDecay(est, float64(since))
		if math.Abs(got-want) > 0.001*want {
			t.Fatalf("Decay(2^30, %d) = %.0f, want %.0f within 0.1 %%", since, got, want)
		}
	}
}

func TestDecayBySmallStepsIsDecay(t *testing.T) {
	for _, step := range []uint32{1, 3, 10, 100, 511, 1023} {
		est := uint32(1 << 30)
		ticks := uint32(0)
		for ; ticks < 4*halfLife; ticks += step {
			est = Decay(est, step, shift)
		}
		want := exactDecay(1<<30, float64(ticks))
		if math.Abs(float64(est)-want) > 0.01*want {
			t.Errorf("%d ticks in steps of %d leave %d, want %.0f within 1 %%", ticks, step, est, want)
		}
	}
}

func TestDecayAtTheEdges(t *testing.T) {
	for name, c := range map[string]struct{ est, since, want uint32 }{
		"no time":                     {math.MaxUint32, 0, math.MaxUint32},
		"one half-life":               {1000, halfLife, 500},
		"31 half-lives":               {math.MaxUint32, 31 * halfLife, 1},
		"32 half-lives":               {math.MaxUint32, 32 * halfLife, 0},
		"26 days":                     {math.MaxUint32, 1 << 31, 0},
		"another CPU is ahead":        {1000, math.MaxUint32, 1000},
		"as far ahead as it may be":   {1000, math.MaxUint32 - TickSkew + 1, 1000},
		"further ahead is long ago":   {1000, math.MaxUint32 - TickSkew, 0},
		"the last tick of its second": {1 << 20, halfLife - 1, 524_645},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decay(c.est, c.since, shift); got != c.want {
				t.Errorf("Decay(%d, %d) = %d, want %d", c.est, c.since, got, c.want)
			}
		})
	}
}

func FuzzDecay(f *testing.F) {
	f.Add(uint32(1<<24), uint32(1))
	f.Add(uint32(math.MaxUint32), uint32(32*halfLife-1))
	f.Fuzz(func(t *testing.T, est, since uint32) {
		got := Decay(est, since, shift)
		if got > est {
			t.Errorf("Decay(%d, %d) = %d grows", est, since, got)
		}
		if since < math.MaxUint32-TickSkew && Decay(est, since+1, shift) > got+est>>10+1 {
			t.Errorf("Decay(%d, %d) = %d, and %d a tick later", est, since, got, Decay(est, since+1, shift))
		}
	})
}

func randomKeys(seed uint64) Keys {
	random := rand.New(rand.NewPCG(seed, 0))
	var k Keys
	for i := range k {
		for j := range k[i] {
			k[i][j] = random.Uint64()
		}
	}
	return k
}

func flowOf(i int) Flow {
	f := Flow{SrcPort: uint16(i), DstPort: 443, Protocol: protoTCP, Kind: FlowPorts, EtherType: etherIPv4}
	f.Src[15], f.Dst[15] = 1, byte(i>>16)
	return f
}

// The sketch never says less than a flow sent, however many flows there are.
func TestSketchNeverUnderestimates(t *testing.T) {
	keys := randomKeys(1)
	var s Sketch
	random := rand.New(rand.NewPCG(2, 0))
	truth := map[int]float64{}
	last := map[int]uint32{}
	tick := uint32(math.MaxUint32 - 500) // ticks wrap on the way
	for range 200_000 {
		i := random.IntN(3000)
		tick += uint32(random.IntN(100) / 99)
		cost := uint64(random.IntN(100_000))
		flow := flowOf(i)
		est := s.Update(keys.Hash(&flow), tick, cost, shift)
		truth[i] = exactDecay(truth[i], float64(tick-last[i])) + float64(cost)
		last[i] = tick
		if float64(est) < 0.99*truth[i]-100 {
			t.Fatalf("estimate is %d, want at least %.0f", est, truth[i])
		}
	}
}

// With all flows together at the cap, a small one is not taken for a heavy one:
// its estimate is off by a few thousandths of the total.
func TestSketchIsPrecise(t *testing.T) {
	keys := randomKeys(3)
	var s Sketch
	const flows, cost = 1000, 10_000
	for range 10 {
		for i := range flows {
			flow := flowOf(i)
			s.Update(keys.Hash(&flow), 7, cost, shift)
		}
	}
	off := 0
	for i := range 1000 {
		flow := flowOf(100_000 + i) // new
		if est := s.Update(keys.Hash(&flow), 7, 0, shift); float64(est) > 0.005*flows*cost*10 {
			off++
		}
	}
	if off > 10 {
		t.Errorf("%d of 1000 new flows have an estimate above 0.5 %% of the total, want at most 10", off)
	}
}

func TestSketchSaturates(t *testing.T) {
	keys := randomKeys(4)
	var s Sketch
	flow := flowOf(1)
	for range 3 {
		if got := s.Update(keys.Hash(&flow), 1, math.MaxUint32, shift); got != math.MaxUint32 {
			t.Errorf("estimate is %d, want %d", got, uint32(math.MaxUint32))
		}
	}
}

// Two flows share a row, a hold row or a slot as often as chance has it, and
// sharing one says nothing of another, also if they differ in one port only.
func TestHashIsIndependent(t *testing.T) {
	const pairs = 4_000_000
	var one, both int
	for seed := range uint64(pairs / 4000) {
		keys := randomKeys(seed)
		a := flowOf(0)
		id := keys.Hash(&a)
		for i := 1; i <= 4000; i++ {
			b := flowOf(i)
			other := keys.Hash(&b)
			if id.row(0) != other.row(0) {
				continue
			}
			one++
			if id.row(1) == other.row(1) || id.place(0) == other.place(0) {
				both++
			}
		}
	}
	wantOne := pairs / columns
	wantBoth := 2 * wantOne / columns
	if math.Abs(float64(one-wantOne)) > 0.1*float64(wantOne) {
		t.Errorf("%d pairs share a cell of row 0, want %d within 10 %%", one, wantOne)
	}
	if both < wantBoth/3 || both > 3*wantBoth {
		t.Errorf("%d of them share row 1 or hold row 0 as well, want about %d", both, wantBoth)
	}
}

// The meter keeps its bound at both ends of every range, near the wrap of its
// time and after a day of idleness.
func TestMeterBound(t *testing.T) {
	for _, rate := range []shaping.FixedRate{
		{Mult: 64_000_000 << 14, Shift: 14},  // 1 ms a byte: 8 kbit/s
		{Mult: 1_407_374_883_553, Shift: 40}, // 1.28/64 ns a byte: 400 Gbit/s
	} {
		for _, bytes := range []uint32{60, 1514, 65_536, 512 << 10} {
			for _, start := range []uint64{0, 1<<57 - 1e6, 1 << 62, math.MaxUint64 - 1e6} {
				checkBound(t, rate, bytes, start)
			}
		}
	}
}

func checkBound(t *testing.T, rate shaping.FixedRate, bytes uint32, now uint64) {
	t.Helper()
	cost := Cost(rate, bytes)
	a := ask{rate: rate, bytes: bytes, limit: 5 * cost, full: 5 * cost}
	m := Meter{TAT: now << meterShift}
	random := rand.New(rand.NewPCG(uint64(bytes), now))
	var admitted uint64
	start := now
	for i := range 2000 {
		if i == 1000 {
			now += 86_400e9
			start, admitted = now, 0
		}
		now += random.Uint64N(cost>>meterShift + 2)
		coarse := now
		if _, ok := m.take(&coarse, Clock{ExactNS: now, CoarseNS: now}, a); ok {
			admitted++
		}
		if level := m.Level(now << meterShift); level > a.limit+cost {
			t.Fatalf("level is %d, want at most %d", level, a.limit+cost)
		}
		if most := (now-start)<<meterShift/cost + 7; admitted > most {
			t.Fatalf("%d packets of %d bytes in %d ns, want at most %d", admitted, bytes, now-start, most)
		}
	}
	if least := (now - start) << meterShift / cost * 97 / 100; admitted < least {
		t.Errorf("%d packets of %d bytes in %d ns, want at least %d", admitted, bytes, now-start, least)
	}
}

// Cost is rounded up and does not overflow at the largest packet.
func TestCost(t *testing.T) {
	for name, c := range map[string]struct {
		rate  shaping.FixedRate
		bytes uint32
		want  uint64
	}{
		"rounds up":           {shaping.FixedRate{Mult: 1, Shift: 10}, 1, 1},
		"exact":               {shaping.FixedRate{Mult: 1 << 10, Shift: 10}, 1514, 1514},
		"BIG TCP at 8 kbit/s": {shaping.FixedRate{Mult: 64_000_000 << 14, Shift: 14}, 512 << 10, 64_000_000 * 512 << 10},
		"largest to the byte": {shaping.FixedRate{Mult: 1<<43 - 1, Shift: 1}, MaxBytes, (MaxBytes*(1<<43-1) + 1) / 2},
		"in units":            {shaping.FixedRate{Mult: 3 << 10, Shift: 10}, 8_831_000, 3 * 1079 << 13}, // 1078 of 8 KiB and a bit
		"largest at 1 kbit/s": {shaping.FixedRate{Mult: 512_000_000 << 14, Shift: 14}, math.MaxUint32, 512_000_000 << 32},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Cost(c.rate, c.bytes); got != c.want {
				t.Errorf("Cost(%v, %d) = %d, want %d", c.rate, c.bytes, got, c.want)
			}
		})
	}
}

// The fuller the light-only meter, the smaller a flow has to be.
func TestLightLimit(t *testing.T) {
	const tolerance = 1 << 20
	last := uint64(0)
	for _, est := range []uint32{EstimateOne - 1, EstimateOne/4 - 1, EstimateOne/16 - 1, EstimateOne/64 - 1} {
		limit := lightLimit(tolerance, est, EstimateOne)
		if limit <= last {
			t.Errorf("limit at estimate %d is %d, want more than %d", est, limit, last)
		}
		last = limit
	}
	if last != tolerance {
		t.Errorf("the smallest flows get %d, want the whole tolerance %d", last, tolerance)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{0x60, 0, 0, 0}, true, uint16(etherIPv6))
	f.Add(make([]byte, 64), false, uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, l3Only bool, protocol uint16) {
		p := Packet{Data: data, Protocol: protocol, GSOSize: 100}
		parsed := Parse(&p, l3Only)
		if parsed.Flow.Kind < FlowPorts || parsed.Flow.Kind > FlowEther {
			t.Errorf("a packet is of flow kind %d: it would be unmetered", parsed.Flow.Kind)
		}
		if got := WireComputed(&p, &parsed, true); got < uint32(len(data)) {
			t.Errorf("%d bytes are %d on the wire", len(data), got)
		}
	})
}

// What a flow would have beside so many is known within a third, on average, and
// beyond what the bits can tell it is nothing.
func TestActiveEqual(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, flows := range []int{0, 1, 2, 8, 16, 32} {
		const rounds = 500
		var sum float64
		for range rounds {
			var a Active
			for range flows {
				id := FlowID(random.Uint64())
				a.note(id, 5<<activePeriodShift)
				a.note(id, 5<<activePeriodShift)
			}
			sum += float64(a.equal()) / EstimateOne
		}
		if got, want := sum/rounds, 1/float64(flows+1); math.Abs(got/want-1) > 1.0/3 {
			t.Errorf("%d flows: %.4f of the cap, want about %.4f", flows, got, want)
		}
	}
	if a := (Active{Now: math.MaxUint64}); a.equal() != 0 {
		t.Errorf("with all bits set: %d, want 0", a.equal())
	}
}

// A flow counts in its period and in the next one.
func TestActivePeriods(t *testing.T) {
	const period = 1 << activePeriodShift
	var a Active
	a.note(0, 7*period)
	a.note(1<<58, 8*period)
	if want := (Active{Period: 8, Before: 1, Now: 2}); a != want {
		t.Errorf("after two periods: %+v, want %+v", a, want)
	}
	a.note(2<<58, 8*period-1) // by a CPU whose clock is behind
	if want := (Active{Period: 8, Before: 1, Now: 6}); a != want {
		t.Errorf("with a clock that is behind: %+v, want %+v", a, want)
	}
	a.note(0, 10*period)
	if want := (Active{Period: 10, Now: 1}); a != want {
		t.Errorf("after a period without heavy flows: %+v, want %+v", a, want)
	}
}

// A higher rate is in force at once, whatever the ceiling counted at the lower one.
func TestCeilingOfAnotherRate(t *testing.T) {
	const now = uint64(1000e9)
	d := &Direction{Config: shaping.Datapath{
		CeilingRate:  shaping.FixedRate{Mult: 64 * 8e9 / 10e3}, // 10 kbit/s
		CeilingBurst: 64 * 1e9,
	}}
	p := &Packet{Data: make([]byte, 1000)}
	dropped := 0
	for range 5 {
		if d.Ceiling(p, Clock{CoarseNS: now, ExactNS: now}).Disposition.Dropped() {
			dropped++
		}
	}
	if dropped != 3 {
		t.Errorf("%d of 5 packets of 0.8 s were dropped with room for 1 s, want 3", dropped)
	}
	d.Config.CeilingRate.Mult /= 100
	d.Config.CeilingBurst /= 10
	if out := d.Ceiling(p, Clock{CoarseNS: now, ExactNS: now}); out.Disposition.Dropped() {
		t.Error("the first packet at a higher rate was dropped")
	}
}
