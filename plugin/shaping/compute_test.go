// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package shaping_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/plugin/units"
)

// counter gives the majors 1, 2, 3 ..., so that a tree can be written down.
func counter() func() uint16 {
	next := uint16(0)
	return func() uint16 { next++; return next }
}

func strict(rate int, change ...func(*shaping.Limit)) *shaping.Limit {
	l := shaping.DefaultLimit(units.BitRate(rate))
	for _, c := range change {
		c(l)
	}
	return l
}

// limiting is a configuration of one direction.
func limiting(d terms.Direction, l *shaping.Limit) *shaping.Config {
	cfg := &shaping.Config{}
	cfg.SetLimit(d, l)
	return cfg
}

func policy(p terms.Policy) func(*shaping.Limit) { return func(l *shaping.Limit) { l.Policy = p } }
func queue(q terms.Queue) func(*shaping.Limit)   { return func(l *shaping.Limit) { l.Queue = q } }
func mode(m terms.Mode) func(*shaping.Limit)     { return func(l *shaping.Limit) { l.Mode = m } }
func at(p terms.Place) func(*shaping.Limit)      { return func(l *shaping.Limit) { l.Place = p } }

var (
	// full has everything, here has what the build machine has.
	full = shaping.Facts{Prio: true, HTB: true, TBF: true, IFB: true, MTU: 1500, Namespace: "batch"}
	here = shaping.Facts{HTB: true, TBF: true, IFB: true, MTU: 1500, Namespace: "batch"}
	bare = shaping.Facts{MTU: 1500}

	elephants = policy(terms.PolicyElephants)
	flat      = policy(terms.PolicyFlat)
	exempt    = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
)

// sketchOf writes a tree in a line per object: what hangs where, how deep.
func sketchOf(p *shaping.Params) string {
	if p.Tree == nil {
		return ""
	}
	var out strings.Builder
	for _, q := range p.Tree.Qdiscs {
		fmt.Fprintf(&out, "%s %s %s", q.Parent, q.Kind, q.Handle)
		for _, n := range []struct {
			name  string
			value uint64
		}{
			{"rate", uint64(q.Rate)},
			{"burst", uint64(q.Burst)},
			{"limit", uint64(q.Limit)},
			{"bands", uint64(q.Bands)},
			{"default", uint64(q.DefaultClass)},
			{"packets", uint64(q.PacketLimit)},
			{"segment", uint64(q.Segment)},
		} {
			if n.value != 0 {
				fmt.Fprintf(&out, " %s %d", n.name, n.value)
			}
		}
		out.WriteByte('\n')
	}
	for _, c := range p.Tree.Classes {
		fmt.Fprintf(&out, "class %s under %s rate %d ceil %d burst %d/%d prio %d\n", c.Handle, c.Parent,
			c.Rate, c.Ceil, c.Burst, c.CeilBurst, c.Prio)
	}
	if f := p.Tree.Filter; f != nil {
		fmt.Fprintf(&out, "filter on %s answers %s\n", f.Parent, f.ClassID)
	}
	return out.String()
}

// where writes the program and its place in one line.
func where(p *shaping.Params) string {
	s := fmt.Sprintf("%s/%s on %s: %q at %s/%s", p.Mode, p.Queue, p.Side, p.ProgramName(), p.Hook, p.HookKind)
	if p.Guard {
		s += " guard"
	}
	if p.Redirect {
		s += " redirect"
	}
	return s
}

// answers writes class and priority per disposition.
func answers(p *shaping.Params) string {
	d := p.Datapath
	s := fmt.Sprintf("light %x %x, heavy %x %x, exempt %x %x", d.LightClass, d.LightPriority,
		d.HeavyClass, d.HeavyPriority, d.ExemptClass, d.ExemptPriority)
	if d.DropClass != 0 {
		s += fmt.Sprintf(", drop %x", d.DropClass)
	}
	return s
}

func TestComputeTrees(t *testing.T) {
	t.Parallel()
	const none = "light 0 0, heavy 0 0, exempt 0 0"
	// The classifier stands before the bucket.
	const classifiedFirst = `
root prio 1:0 bands 3
1:1 bfifo 2:0 limit 4000000
1:2 tbf 3:0 rate 1250000 burst 9100
3:1 prio 4:0 bands 2
4:1 bfifo 5:0 limit 200000
4:2 bfifo 6:0 limit 319000
1:3 bfifo 7:0 limit 1
filter on 1:0 answers 1:0
`
	for name, tc := range map[string]struct {
		limit   *shaping.Limit
		dir     terms.Direction
		facts   shaping.Facts
		exempt  bool
		where   string
		tree    string
		answers string
	}{
		"strict, prio: drops are told, of whole packets": {
			limit: strict(10e6), dir: terms.Egress, facts: full, where: `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, tree: classifiedFirst, answers: "light 2 40001, heavy 2 40002, exempt 1 0, drop 3",
		},
		"strict, prio: whole packets fit the bucket": {
			limit: strict(100e6), dir: terms.Egress, facts: full, where: `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, tree: `
root tbf 1:0 rate 12500000 burst 98486
1:1 prio 2:0 bands 3
2:1 bfifo 3:0 limit 1250000
2:2 bfifo 4:0 limit 694000
2:3 bfifo 5:0 limit 1
filter on 2:0 answers 2:0
`, answers: "light 1 0, heavy 2 0, exempt 0 0, drop 3",
		},
		"strict, no prio": {
			limit: strict(10e6), dir: terms.Egress, facts: here, where: `qdisc/tbf on pod: "pw_band" at egress/auto`, tree: `
root tbf 1:0 rate 1250000 burst 9100
1:1 pfifo_fast 2:0 packets 256
`, answers: "light 0 6, heavy 0 2, exempt 0 0",
		},
		"strict, ingress on the host side": {
			limit: strict(10e6), dir: terms.Ingress, facts: full, where: `qdisc/tbf on host: "pw_class" at own-qdisc/auto`, tree: `
root tbf 1:0 rate 1250000 burst 9100
1:1 prio 2:0 bands 3
2:1 bfifo 3:0 limit 200000
2:2 bfifo 4:0 limit 319000
2:3 bfifo 5:0 limit 1
filter on 2:0 answers 2:0
`, answers: "light 1 0, heavy 2 0, exempt 0 0, drop 3",
		},
		"strict, ifb": {
			limit: strict(10e6, at(terms.PlaceIFB)), dir: terms.Ingress, facts: here, where: `qdisc/tbf on ifb: "pw_band" at egress/auto redirect`, tree: `
root tbf 1:0 rate 1250000 burst 9100
1:1 pfifo_fast 2:0 packets 256
`, answers: "light 0 6, heavy 0 2, exempt 0 0",
		},
		"flat": {
			limit: strict(10e6, flat), dir: terms.Egress, facts: full, where: `qdisc/tbf on pod: "" at none/auto`, tree: `
root tbf 1:0 rate 1250000 burst 9100
1:1 bfifo 2:0 limit 62500
`, answers: none,
		},
		"flat at a hook has no program either": {
			limit: strict(10e6, flat, mode(terms.ModeTCXPodSide)), dir: terms.Egress, facts: here, where: `tcx-podside/tbf on pod: "" at none/auto`, tree: `
root tbf 1:0 rate 1250000 burst 9100
1:1 bfifo 2:0 limit 62500
`, answers: none,
		},
		"elephants, prio": {
			limit: strict(10e6, elephants), dir: terms.Egress, facts: full, where: `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, tree: `
root prio 1:0 bands 3
1:1 bfifo 2:0 limit 4000000
1:2 tbf 3:0 rate 1250000 burst 9100
3:1 bfifo 4:0 limit 200500
1:3 bfifo 5:0 limit 1
filter on 1:0 answers 1:0
`, answers: "light 1 0, heavy 2 0, exempt 1 0, drop 3",
		},
		"elephants, no prio": {
			limit: strict(10e6, elephants), dir: terms.Egress, facts: here, where: `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, tree: `
root htb 1:0
1:2 tbf 2:0 rate 1250000 burst 9100
2:1 bfifo 3:0 limit 200500
1:3 bfifo 4:0 limit 1
class 1:2 under 1:0 rate 50000000000 ceil 50000000000 burst 4000000/4000000 prio 0
class 1:3 under 1:0 rate 1250000 ceil 1250000 burst 9100/9100 prio 0
filter on 1:0 answers 1:0
`, answers: "light 0 0, heavy 2 0, exempt 0 0, drop 3",
		},
		"strict with exempt subnets, prio": {
			limit: strict(10e6), dir: terms.Egress, facts: full, exempt: true,
			where: `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, tree: classifiedFirst, answers: "light 2 40001, heavy 2 40002, exempt 1 0, drop 3",
		},
		"strict with exempt subnets, no prio": {
			limit: strict(10e6), dir: terms.Ingress, facts: here, exempt: true,
			where: `qdisc/tbf on host: "pw_class" at own-qdisc/auto`, tree: `
root htb 1:0
1:2 tbf 2:0 rate 1250000 burst 9100
2:1 pfifo_fast 3:0 packets 256
1:3 bfifo 4:0 limit 1
class 1:2 under 1:0 rate 50000000000 ceil 50000000000 burst 4000000/4000000 prio 0
class 1:3 under 1:0 rate 1250000 ceil 1250000 burst 9100/9100 prio 0
filter on 1:0 answers 1:0
`, answers: "light 2 6, heavy 2 2, exempt 0 0, drop 3",
		},
		"flat with exempt subnets": {
			limit: strict(10e6, flat), dir: terms.Egress, facts: full, exempt: true,
			where: `qdisc/tbf on pod: "pw_class" at own-qdisc/auto guard`, tree: `
root prio 1:0 bands 2
1:1 bfifo 2:0 limit 4000000
1:2 tbf 3:0 rate 1250000 burst 9100
3:1 bfifo 4:0 limit 62500
filter on 1:0 answers 1:0
`, answers: "light 2 0, heavy 2 0, exempt 1 0",
		},
		"strict at a hook takes pfifo_fast even with prio": {
			limit: strict(10e6, mode(terms.ModeTCXHostSide)), dir: terms.Ingress, facts: full, where: `tcx-hostside/tbf on host: "pw_band" at egress/tcx`, tree: `
root tbf 1:0 rate 1250000 burst 9100
1:1 pfifo_fast 2:0 packets 256
`, answers: "light 0 6, heavy 0 2, exempt 0 0",
		},
		"strict with exempt subnets at a hook, no prio": {
			limit: strict(10e6, mode(terms.ModeClsactPodSide)), dir: terms.Egress, facts: here, exempt: true,
			where: `clsact-podside/tbf on pod: "pw_band" at egress/clsact`, tree: `
root htb 1:0 default 2
1:2 tbf 2:0 rate 1250000 burst 9100
2:1 pfifo_fast 3:0 packets 256
class 1:2 under 1:0 rate 50000000000 ceil 50000000000 burst 4000000/4000000 prio 0
`, answers: "light 0 6, heavy 0 2, exempt 0 10000",
		},
		"elephants at a hook, prio": {
			limit: strict(10e6, elephants, mode(terms.ModeTCXPodSide)), dir: terms.Egress, facts: full, where: `tcx-podside/tbf on pod: "pw_band" at egress/tcx`, tree: `
root prio 1:0 bands 2
1:1 bfifo 2:0 limit 4000000
1:2 tbf 3:0 rate 1250000 burst 9100
3:1 bfifo 4:0 limit 200500
`, answers: "light 0 10001, heavy 0 10002, exempt 0 10001",
		},
		"flat with exempt subnets at a hook": {
			limit: strict(10e6, flat, mode(terms.ModeTCXPodSide)), dir: terms.Egress, facts: here, exempt: true,
			where: `tcx-podside/tbf on pod: "pw_band" at egress/tcx`, tree: `
root htb 1:0 default 2
1:2 tbf 2:0 rate 1250000 burst 9100
2:1 bfifo 3:0 limit 62500
class 1:2 under 1:0 rate 50000000000 ceil 50000000000 burst 4000000/4000000 prio 0
`, answers: "light 0 10002, heavy 0 10002, exempt 0 10000",
		},
		"no queue available, egress": {
			limit: strict(10e6), dir: terms.Egress, facts: bare, exempt: true,
			where: `auto/none on pod: "pw_police" at egress/auto`, answers: none,
		},
		"no queue available, ingress": {
			limit: strict(10e6), dir: terms.Ingress, facts: bare, where: `auto/none on pod: "pw_police" at ingress/auto`, answers: none,
		},
		"host-side egress polices": {
			limit: strict(10e6, mode(terms.ModeClsactHostSide)), dir: terms.Egress, facts: full, where: `clsact-hostside/none on host: "pw_police" at ingress/clsact`, answers: none,
		},
		"pod-side ingress polices": {
			limit: strict(10e6, mode(terms.ModeTCXPodSide)), dir: terms.Ingress, facts: full, where: `tcx-podside/none on pod: "pw_police" at ingress/tcx`, answers: none,
		},
		"policing where the queues of other pods are on an ifb": {
			limit: strict(10e6, queue(terms.QueueNone), at(terms.PlaceIFB)), dir: terms.Ingress, facts: bare, where: `auto/none on pod: "pw_police" at ingress/auto`, answers: none,
		},
		"policing where a queue was available": {
			limit: strict(10e6, mode(terms.ModeTCXHostSide), queue(terms.QueueNone), at(terms.PlaceHost)),
			dir:   terms.Ingress, facts: full, where: `tcx-hostside/none on host: "pw_police" at egress/tcx`, answers: none,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := &shaping.Config{Egress: tc.limit, Ingress: tc.limit}
			if tc.exempt {
				cfg.Unshaped = exempt
			}
			p := must.Get(shaping.Compute(cfg, tc.dir, tc.facts, counter()))(t)
			must.Match(t, "program", tc.where, where(p))
			must.Match(t, "tree", strings.TrimPrefix(tc.tree, "\n"), sketchOf(p))
			must.Match(t, "answers", tc.answers, answers(p))
		})
	}
}

func TestComputeConflicts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		dir          terms.Direction
		limit        *shaping.Limit
		field, value string
	}{
		"a queue at pod-side ingress": {terms.Ingress, strict(1e9, mode(terms.ModeTCXPodSide), queue(terms.QueueTBF)), "ingressMode, ingressQueue", "tcx-podside, tbf"},
		"a queue at host-side egress": {terms.Egress, strict(1e9, mode(terms.ModeClsactHostSide), queue(terms.QueueTBF)), "egressMode, egressQueue", "clsact-hostside, tbf"},
		"policing on a qdisc":         {terms.Egress, strict(1e9, mode(terms.ModeQdisc), queue(terms.QueueNone)), "egressMode, egressQueue", "qdisc, none"},
		"ifb for host-side hooks":     {terms.Ingress, strict(1e9, mode(terms.ModeTCXHostSide), at(terms.PlaceIFB)), "ingressPlace, ingressMode", "ifb, tcx-hostside"},
		"host for pod-side hooks":     {terms.Ingress, strict(1e9, mode(terms.ModeTCXPodSide), at(terms.PlaceHost)), "ingressPlace, ingressMode", "host, tcx-podside"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := limiting(tc.dir, tc.limit)
			p, err := shaping.Compute(cfg, tc.dir, full, counter())
			bad, ok := errors.AsType[*shaping.FieldError](err)
			if !ok || p != nil {
				t.Fatalf("Compute() = %v, %v, want a FieldError", p, err)
			}
			if bad.Field != tc.field || bad.Value != tc.value || bad.Accepted == "" {
				t.Errorf("Compute() error = %+v, want %s %s", bad, tc.field, tc.value)
			}
			got := shaping.Validate(cfg)
			if len(got) != 1 || *got[0] != *bad {
				t.Errorf("Validate() = %v, Compute() = %v, want the same", got, bad)
			}
		})
	}
}

func TestComputeMajors(t *testing.T) {
	t.Parallel()
	cfg := &shaping.Config{Egress: strict(10e6), Unshaped: exempt}
	first := must.Get(shaping.Compute(cfg, terms.Egress, full, shaping.RandomMajor))(t)
	i := 0
	again, err := shaping.Compute(cfg, terms.Egress, full, func() uint16 {
		i++
		return uint16(first.Tree.Qdiscs[i-1].Handle >> 16)
	})
	must.OK(t, err)
	must.Match(t, "with the recorded majors", first, again)
	odd := []uint16{0, 0xffff, 0xfff1, 0xfff0, 7, 7, 8, 7, 9, 10, 11, 12, 0xffef}
	p, err := shaping.Compute(cfg, terms.Egress, full, func() uint16 {
		m := odd[0]
		odd = odd[1:]
		return m
	})
	must.OK(t, err)
	var got []uint16
	for _, q := range p.Tree.Qdiscs {
		got = append(got, uint16(q.Handle>>16))
	}
	must.Match(t, "majors", []uint16{7, 8, 9, 10, 11, 12, 0xffef}, got)
	must.Fail(t, "Compute() with one major for all", must.Err(shaping.Compute(cfg, terms.Egress, full, func() uint16 { return 7 })))
	for range 100_000 {
		if m := shaping.RandomMajor(); m == 0 || m > 0xffef {
			t.Fatalf("RandomMajor() = %#x", m)
		}
	}
}

// A queue that is not available never costs the limit.
func TestComputeAnotherQueueThanAskedFor(t *testing.T) {
	t.Parallel()
	const lacks = "no queue: the kernel lacks tbf that would fit"
	noTBF, onlyTBF := full, shaping.Facts{TBF: true, MTU: 1500}
	noTBF.TBF = false
	for name, tc := range map[string]struct {
		limit *shaping.Limit
		facts shaping.Facts
		want  terms.Queue
		note  string
	}{
		"tbf that the kernel lacks": {strict(1e9, queue(terms.QueueTBF)), bare, terms.QueueNone, "not the queue tbf: the kernel lacks it"},
		"tbf that cannot be bypassed": {
			strict(1e9, queue(terms.QueueTBF), elephants), onlyTBF, terms.QueueNone,
			"not the queue tbf: with traffic that bypasses the cap the kernel needs prio or htb below it",
		},
		"no queue that fits":            {strict(1e9), noTBF, terms.QueueNone, lacks},
		"tbf alone serves strict":       {strict(10e6), onlyTBF, terms.QueueTBF, ""},
		"tbf alone bypasses for nobody": {strict(10e6, elephants), onlyTBF, terms.QueueNone, lacks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := must.Get(shaping.Compute(&shaping.Config{Egress: tc.limit}, terms.Egress, tc.facts, counter()))(t)
			if got.Queue != tc.want || got.Rate != tc.limit.Rate || !strings.Contains(strings.Join(got.Notes, "\n"), tc.note) {
				t.Errorf("Compute() = queue %v at %v, notes %q, want %v and %q", got.Queue, got.Rate, got.Notes, tc.want, tc.note)
			}
		})
	}
}

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
		"others":        {limit: strict(10e6), facts: here, given: shaping.Config{Shaped: network}},
		"one band":      {limit: strict(10e6, func(l *shaping.Limit) { l.Policy = terms.PolicyFlat }), facts: here},
		"no queue":      {limit: strict(10e6, func(l *shaping.Limit) { l.Queue = terms.QueueNone }), facts: here},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.given.Egress = tt.limit
			p := must.Get(shaping.Compute(&tt.given, terms.Egress, tt.facts, counter()))(t)
			if p.OffloadBytes != tt.want || p.Paced != tt.paced {
				t.Errorf("packets of up to %v, paced %v, want %v, %v", p.OffloadBytes, p.Paced, tt.want, tt.paced)
			}
		})
	}
	in := must.Get(shaping.Compute(&shaping.Config{Ingress: strict(10e6)}, terms.Ingress, here, counter()))(t)
	must.Be(t, "bound of packets into a pod, whose senders are elsewhere", 0, in.OffloadBytes)
}

// sampleRates has both ends, their neighbours, and random rates in between
// that are spread over the magnitudes.
func sampleRates() []units.BitRate {
	rates := []units.BitRate{
		units.MinRate, units.MinRate + 1, 8_000, 1e6, 10e6, 52_999_999, 53e6, 53_999_999, 54e6,
		100e6, 1e9, 1e9 + 7, 10e9, 100e9, units.MaxRate - 1, units.MaxRate,
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same sample each time
	for range 500 {
		span := math.Log(float64(units.MaxRate) / float64(units.MinRate))
		rates = append(rates, units.BitRate(float64(units.MinRate)*math.Exp(random.Float64()*span)))
	}
	return rates
}

func quotient(f image.Rate) *big.Rat {
	den := new(big.Int).Lsh(big.NewInt(1), uint(f.Shift))
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(f.Mult), den)
}

// checkFixed fails unless got is want rounded up by less than 2^-40 of it, in
// the range that keeps the dataplane's product below 2^64.
func checkFixed(t *testing.T, what string, got image.Rate, want *big.Rat) {
	t.Helper()
	if got.Mult == 0 || got.Mult >= 1<<44 || got.Shift >= 64 {
		t.Errorf("%s = %+v, want mult below 2^44 and shift below 64", what, got)
	}
	// (2^20-1)*mult + 2^shift - 1 must not wrap.
	top := new(big.Int).Mul(big.NewInt(1<<20-1), new(big.Int).SetUint64(got.Mult))
	top.Add(top, new(big.Int).Lsh(big.NewInt(1), uint(got.Shift)))
	if top.BitLen() > 64 {
		t.Errorf("%s = %+v overflows 64 bits", what, got)
	}
	excess := new(big.Rat).Sub(quotient(got), want)
	bound := new(big.Rat).Mul(want, new(big.Rat).SetFrac64(1, 1<<40))
	if excess.Sign() < 0 || excess.Cmp(bound) >= 0 {
		f, _ := new(big.Rat).Quo(excess, want).Float64()
		t.Errorf("%s = %+v, relative error %g, want 0 to 2^-40", what, got, f)
	}
}

func TestSketchRate(t *testing.T) {
	t.Parallel()
	// ln 2 to 40 digits.
	ln2, _ := new(big.Rat).SetString("0.6931471805599453094172321214581765680755")
	for _, rate := range sampleRates() {
		for i, threshold := range []units.PerMille{5, 50, 333, 1000} {
			// estimate = rate * tau * x must be 2^24 with tau = 2^(20 + half-life) ns / ln 2.
			halfLife := uint8(10 - i)
			perSecond := new(big.Rat).SetFrac(
				new(big.Int).Mul(new(big.Int).SetUint64(uint64(rate)), big.NewInt(int64(threshold))), big.NewInt(8000))
			tau := new(big.Rat).Quo(new(big.Rat).SetFrac64(1<<(20+halfLife), 1e9), ln2)
			want := new(big.Rat).Quo(new(big.Rat).SetInt64(1<<24), new(big.Rat).Mul(perSecond, tau))
			checkFixed(t, rate.String()+" x "+threshold.String(), shaping.SketchRate(rate, threshold, halfLife), want)
		}
	}
}
