// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

//go:build cgo

package lib

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
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
		got, want := float64(decay(est, since, shift)), exactDecay(est, float64(since))
		if math.Abs(got-want) > 0.001*want {
			t.Fatalf("decay(2^30, %d) = %.0f, want %.0f within 0.1 %%", since, got, want)
		}
	}
}

func TestDecayBySmallStepsIsDecay(t *testing.T) {
	for _, step := range []uint32{1, 3, 10, 100, 511, 1023} {
		est := uint32(1 << 30)
		ticks := uint32(0)
		for ; ticks < 4*halfLife; ticks += step {
			est = decay(est, step, shift)
		}
		want := exactDecay(1<<30, float64(ticks))
		must.Within(t, fmt.Sprintf("what %d ticks in steps of %d leave", ticks, step), 0.99*want, 1.01*want, float64(est))
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
		"as far ahead as it may be":   {1000, math.MaxUint32 - tickSkew + 1, 1000},
		"further ahead is long ago":   {1000, math.MaxUint32 - tickSkew, 0},
		"the last tick of its second": {1 << 20, halfLife - 1, 524_645},
	} {
		t.Run(name, func(t *testing.T) {
			must.Be(t, fmt.Sprintf("decay(%d, %d)", c.est, c.since), c.want, decay(c.est, c.since, shift))
		})
	}
}

func FuzzDecay(f *testing.F) {
	f.Add(uint32(1<<24), uint32(1))
	f.Add(uint32(math.MaxUint32), uint32(32*halfLife-1))
	f.Fuzz(func(t *testing.T, est, since uint32) {
		got := decay(est, since, shift)
		if got > est {
			t.Errorf("decay(%d, %d) = %d grows", est, since, got)
		}
		if since < math.MaxUint32-tickSkew && decay(est, since+1, shift) > got+est>>10+1 {
			t.Errorf("decay(%d, %d) = %d, and %d a tick later", est, since, got, decay(est, since+1, shift))
		}
	})
}

// withKeys is a direction with keys for its hash.
func withKeys(seed uint64) *direction {
	random := rand.New(rand.NewPCG(seed, 0))
	d := &direction{}
	for i := range d.HashKeys {
		for j := range d.HashKeys[i] {
			d.HashKeys[i][j] = random.Uint64()
		}
	}
	d.Config[0].HalfLifeShift = shift
	d.Config[0].Policy = uint8(terms.PolicyStrict)
	return d
}

// Protocols.
const (
	protoTCP = 6
	protoUDP = 17
)

// flowFrom is a flow by its protocol and ports.
func flowFrom(protocol uint8, src, dst uint16) image.Flow {
	return image.Flow{
		Sport: swap(src), Dport: swap(dst), Protocol: protocol, Kind: uint8(image.FlowPorts), Ethertype: swap(etherIPv4),
	}
}

func flowOf(i int) image.Flow {
	f := flowFrom(protoTCP, uint16(i), 443)
	f.Src[3], f.Dst[3] = 1<<24, uint32(byte(i>>16))<<24
	return f
}

// row and place are where a hash leads to.
func row(id uint64, row int) uint32   { return uint32(id>>32>>(row*columnBits)) % columns }
func place(id uint64, row int) uint32 { return uint32(id) >> (row * 8) % flowColumns }

// The sketch never says less than a flow sent, however many flows there are.
func TestSketchNeverUnderestimates(t *testing.T) {
	d := withKeys(1)
	random := rand.New(rand.NewPCG(2, 0))
	truth := map[int]float64{}
	last := map[int]uint32{}
	tick := uint32(math.MaxUint32 - 500) // ticks wrap on the way
	for range 200_000 {
		i := random.IntN(3000)
		tick += uint32(random.IntN(100) / 99)
		cost := uint64(random.IntN(100_000))
		flow := flowOf(i)
		est := d.sketch(d.hash(&flow), tick, cost)
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
	for _, policy := range []terms.Policy{terms.PolicyStrict, terms.PolicyElephants} {
		d := withKeys(3)
		d.Config[0].Policy = uint8(policy)
		checkPrecise(t, d)
	}
}

func checkPrecise(t *testing.T, d *direction) {
	t.Helper()
	const flows, cost = 1000, 10_000
	for range 10 {
		for i := range flows {
			flow := flowOf(i)
			d.sketch(d.hash(&flow), 7, cost)
		}
	}
	off := 0
	for i := range 1000 {
		flow := flowOf(100_000 + i) // new
		if est := d.sketch(d.hash(&flow), 7, 0); float64(est) > 0.005*flows*cost*10 {
			off++
		}
	}
	must.AtMost(t, fmt.Sprintf("policy %d: new flows of 1000 with an estimate above 0.5 %% of the total", d.Config[0].Policy), 10, off)
}

// Elephants have both sketches in the same rows.
func TestElephantsSketchesShareNoCell(t *testing.T) {
	one, other := withKeys(5), withKeys(5)
	for _, d := range []*direction{one, other} {
		d.Config[0].Policy, d.Config[0].FairHalfLifeShift = uint8(terms.PolicyElephants), shift
	}
	for i := range 2000 {
		flow := flowOf(i)
		id := one.hash(&flow)
		if est, recent := one.sketch(id, 7, 1000), other.recent(id, 7, 1000); est < 1000 || recent < 1000 {
			t.Fatalf("flow %d has %d and %d in the sketches that it is in, want at least 1000", i, est, recent)
		}
	}
	for i := range 2000 {
		flow := flowOf(i)
		id := one.hash(&flow)
		if recent, est := one.recent(id, 7, 0), other.sketch(id, 7, 0); recent != 0 || est != 0 {
			t.Fatalf("flow %d has %d in the one sketch and %d in the other, and was in neither", i, recent, est)
		}
	}
}

func TestSketchSaturates(t *testing.T) {
	d := withKeys(4)
	flow := flowOf(1)
	for range 3 {
		must.Be(t, "estimate", math.MaxUint32, d.sketch(d.hash(&flow), 1, math.MaxUint32))
	}
}

// Two flows share a row, a hold row or a slot as often as chance has it, and
// sharing one says nothing of another, also if they differ in one port only.
func TestHashIsIndependent(t *testing.T) {
	const pairs = 4_000_000
	var one, both int
	for seed := range uint64(pairs / 4000) {
		d := withKeys(seed)
		a := flowOf(0)
		id := d.hash(&a)
		for i := 1; i <= 4000; i++ {
			b := flowOf(i)
			other := d.hash(&b)
			if row(id, 0) != row(other, 0) {
				continue
			}
			one++
			if row(id, 1) == row(other, 1) || place(id, 0) == place(other, 0) {
				both++
			}
		}
	}
	wantOne := pairs / columns
	wantBoth := 2 * wantOne / columns
	must.Within(t, "pairs that share a cell of row 0", 0.9*float64(wantOne), 1.1*float64(wantOne), float64(one))
	must.Within(t, "of them that share row 1, or hold row 0 as well", wantBoth/3, 3*wantBoth, both)
}

// The meter keeps its bound at both ends of every range, near the wrap of its
// time and after a day of idleness.
func TestMeterBound(t *testing.T) {
	for _, rate := range []image.Rate{
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

func checkBound(t *testing.T, rate image.Rate, bytes uint32, now uint64) {
	t.Helper()
	one := cost(rate, bytes)
	limit, tat := 5*one, now<<meterShift
	random := rand.New(rand.NewPCG(uint64(bytes), now))
	var admitted uint64
	start := now
	for i := range 2000 {
		if i == 1000 {
			now += 86_400e9
			start, admitted = now, 0
		}
		now += random.Uint64N(one>>meterShift + 2)
		setClock(now, 0)
		if take(&tat, rate, bytes, limit) {
			admitted++
		}
		if level := level(tat, now<<meterShift); level > limit+one {
			t.Fatalf("level is %d, want at most %d", level, limit+one)
		}
		if most := (now-start)<<meterShift/one + 7; admitted > most {
			t.Fatalf("%d packets of %d bytes in %d ns, want at most %d", admitted, bytes, now-start, most)
		}
	}
	must.AtLeast(t, fmt.Sprintf("packets of %d bytes in %d ns", bytes, now-start), (now-start)<<meterShift/one*97/100, admitted)
}

// Cost is rounded up and does not overflow at the largest packet.
func TestCost(t *testing.T) {
	for name, c := range map[string]struct {
		rate  image.Rate
		bytes uint32
		want  uint64
	}{
		"rounds up":           {image.Rate{Mult: 1, Shift: 10}, 1, 1},
		"exact":               {image.Rate{Mult: 1 << 10, Shift: 10}, 1514, 1514},
		"BIG TCP at 8 kbit/s": {image.Rate{Mult: 64_000_000 << 14, Shift: 14}, 512 << 10, 64_000_000 * 512 << 10},
		"largest to the byte": {image.Rate{Mult: 1<<43 - 1, Shift: 1}, maxBytes, (maxBytes*(1<<43-1) + 1) / 2},
		"in units":            {image.Rate{Mult: 3 << 10, Shift: 10}, 8_831_000, 3 * 1079 << 13}, // 1078 of 8 KiB and a bit
		"largest at 1 kbit/s": {image.Rate{Mult: 512_000_000 << 14, Shift: 14}, math.MaxUint32, 512_000_000 << 32},
	} {
		t.Run(name, func(t *testing.T) {
			must.Be(t, fmt.Sprintf("cost(%v, %d)", c.rate, c.bytes), c.want, cost(c.rate, c.bytes))
		})
	}
}

// The fuller the light-only meter, the smaller a flow has to be.
func TestLightLimit(t *testing.T) {
	const tolerance = 1 << 20
	last := uint64(0)
	for _, est := range []uint32{estimateOne - 1, estimateOne/4 - 1, estimateOne/16 - 1, estimateOne/64 - 1} {
		limit := lightLimit(tolerance, est, estimateOne)
		if limit <= last {
			t.Errorf("limit at estimate %d is %d, want more than %d", est, limit, last)
		}
		last = limit
	}
	must.Be(t, "tolerance of the smallest flows", tolerance, last)
}

// What a flow would have beside so many is known within a third, on average, and
// beyond what the bits can tell it is nothing.
func TestActiveEqual(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, flows := range []int{0, 1, 2, 8, 16, 32} {
		const rounds = 500
		var sum float64
		for range rounds {
			d := &direction{}
			for range flows {
				id := random.Uint64()
				d.noteActive(id, 5*activePeriod)
				d.noteActive(id, 5*activePeriod)
			}
			sum += float64(d.equal()) / estimateOne
		}
		must.Within(t, fmt.Sprintf("%d flows: part of the cap", flows), 2.0/3/float64(flows+1), 4.0/3/float64(flows+1), sum/rounds)
	}
	d := &direction{}
	d.State.ActiveNow = math.MaxUint64
	must.Be(t, "with all bits set", 0, d.equal())
}

// A flow counts in its period and in the next one.
func TestActivePeriods(t *testing.T) {
	d := &direction{}
	d.noteActive(0, 7*activePeriod)
	for _, step := range []struct {
		what                string
		id, at              uint64
		period, before, now uint64
	}{
		{"a period later", 1 << 58, 8 * activePeriod, 8, 1, 2},
		{"with a clock that is behind", 2 << 58, 8*activePeriod - 1, 8, 1, 6},
		{"after a period without heavy flows", 0, 10 * activePeriod, 10, 0, 1},
	} {
		d.noteActive(step.id, step.at)
		if s := &d.State; s.ActivePeriod != step.period || s.ActiveBefore != step.before || s.ActiveNow != step.now {
			t.Errorf("%s: period %d has %#x, and %#x before, want %+v", step.what, s.ActivePeriod, s.ActiveNow, s.ActiveBefore, step)
		}
	}
}

// A higher rate is in force at once, whatever the ceiling counted at the lower one.
func TestCeilingOfAnotherRate(t *testing.T) {
	setClock(1000e9, 0)
	d := &direction{}
	c := &d.Config[0]
	c.CeilingRate = image.Rate{Mult: 64 * 8e9 / 10e3} // 10 kbit/s
	c.CeilingBurst = 64 * 1e9
	dropped := 0
	for range 5 {
		if !d.ceiling(1000) {
			dropped++
		}
	}
	must.Be(t, "of 5 packets of 0.8 s dropped with room for 1 s", 3, dropped)
	c.CeilingRate.Mult /= 100
	c.CeilingBurst /= 10
	if !d.ceiling(1000) {
		t.Error("the first packet at a higher rate was dropped")
	}
}
