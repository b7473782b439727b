// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Verdicts, as in linux/pkt_cls.h.
const (
	verdictNext     = -1
	verdictOwnClass = 0
	verdictDrop     = 2
	verdictRedirect = 7
)

// allowedVerdicts is what each program may answer, whatever happens.
var allowedVerdicts = map[string][]int32{
	"pw_class":       {verdictOwnClass, verdictDrop},
	"pw_class_probe": {verdictOwnClass, verdictDrop},
	"pw_band":        {verdictNext, verdictDrop},
	"pw_police":      {verdictNext, verdictDrop},
	"pw_guard":       {verdictNext},
	"pw_ceiling":     {verdictNext, verdictDrop},
	"pw_redirect":    {verdictNext, verdictRedirect},
}

// invalidConfigs makes configurations that a program must not obey.
func invalidConfigs() map[string]image.Config {
	valid := validConfig(terms.PolicyStrict)
	older, newer, noPolicy, unknown := valid, valid, valid, valid
	older.AbiVersion, newer.AbiVersion = 12, 14
	noPolicy.Policy, unknown.Policy = 0, 4
	return map[string]image.Config{
		"all zero":       {},
		"older ABI":      older,
		"newer ABI":      newer,
		"no policy":      noPolicy,
		"unknown policy": unknown,
	}
}

// degenerateConfigs makes configurations that are valid and extreme.
func degenerateConfigs() map[string]image.Config {
	out := map[string]image.Config{}
	for _, p := range policies {
		out["default "+p.String()] = validConfig(p)
		out["only the version and "+p.String()] = image.Config{AbiVersion: 13, Policy: uint8(p)}
	}
	largest := validConfig(terms.PolicyStrict)
	most := image.Rate{Mult: 1<<44 - 1, Shift: 0}
	largest.LightRate, largest.TotalRate, largest.SketchRate, largest.CeilingRate = most, most, most, most
	out["the highest cost"] = largest
	shift := validConfig(terms.PolicyStrict)
	shift.TotalRate.Shift, shift.LightRate.Shift = 64, 1<<31
	out["a shift beyond 63"] = shift
	closed := validConfig(terms.PolicyStrict)
	closed.TotalBurst, closed.TotalHorizon, closed.LightTolerance, closed.CeilingBurst = 0, 0, 0, 0
	out["nothing is allowed"] = closed
	closed.DropClass = 0
	out["nothing is allowed, and no class for drops"] = closed
	subnets := validConfig(terms.PolicyStrict)
	subnets.SubnetsMode = uint8(shaping.SubnetsShaped)
	out["shaped subnets and none given"] = subnets
	subnets.SubnetsMode = 77
	out["unknown subnets mode"] = subnets
	group := validConfig(terms.PolicyStrict)
	group.InGroup, group.Group, group.GroupRate = 1, 1<<64-1, most
	out["a group whose limit is the highest cost"] = group
	redirect := validConfig(terms.PolicyStrict)
	redirect.RedirectIfindex = 1
	out["with a redirect"] = redirect
	return out
}

func validConfig(p terms.Policy) image.Config {
	m := newDirection(1e6, p)
	return datapath.Config(&m.Config, 0)
}

// No program ever answers what would end another party's chain: every packet
// of the corpus, cut at every length and as it is, with and without
// segmentation, through every program, under every failure.
func TestPrivilegedVerdicts(t *testing.T) {
	d := bpftest.Load(t)
	seen := map[string]map[int32]int{}
	for program := range allowedVerdicts {
		seen[program] = map[int32]int{}
	}
	configs := degenerateConfigs()
	maps.Copy(configs, invalidConfigs())
	for name, cfg := range configs {
		// Where a packet ends matters to the parser, whatever the configuration: every
		// length with some of them, and with the others some lengths.
		step := 7
		if strings.HasPrefix(name, "default") {
			step = 1
		}
		t.Run(name, func(t *testing.T) { verdictsUnder(t, d.For(t), cfg, step, seen) })
	}
	// The test would be blind if drops and redirects never happened.
	for program, allowed := range allowedVerdicts {
		for _, v := range allowed {
			if seen[program][v] == 0 {
				t.Errorf("%s never answered %d", program, v)
			}
		}
	}
}

func verdictsUnder(t *testing.T, d *bpftest.Dataplane, cfg image.Config, step int, seen map[string]map[int32]int) {
	t.Helper()
	d.WriteConfig(cfg, newDirection(1e6, terms.PolicyStrict).Keys)
	now := 5000 * millisecond
	for program, allowed := range allowedVerdicts {
		d.WriteState(&image.State{})
		for kind, data := range bpftest.Corpus() {
			now += 7 * millisecond
			// Once for each kind: to set it takes as long as a packet.
			d.SetClock(bpftest.Clock{ExactNS: now, CoarseNS: now - now%(4*millisecond)}, uint32(now))
			for _, p := range variants(data, step) {
				r, err := d.Run(program, &p)
				if err != nil {
					continue // an untagged packet that is cut in its IP header
				}
				seen[program][r.Verdict]++
				if !slices.Contains(allowed, r.Verdict) {
					t.Fatalf("%s answers %d to %s (%d bytes), want one of %v", program, r.Verdict, kind, len(p.Data), allowed)
				}
			}
		}
	}
}

// variants are a packet, the same with a tag and beginnings of that, and it
// as the head of a segmented packet. The kernel builds a packet that is cut in
// its IP header only if a tag hides that from it.
func variants(data []byte, step int) []bpftest.Packet {
	out := []bpftest.Packet{
		{Data: data},
		{Data: data, GSOSize: 1448, GSOSegs: 45, WireLen: 65536},
		{Data: data, GSOSize: 8},
		{Data: data, GSOSize: 1, GSOSegs: 65535},
	}
	tagged := bpftest.Tag(data)
	for n := 15; n < min(len(tagged), 80); n += step {
		out = append(out, bpftest.Packet{Data: tagged[:n]})
	}
	return append(out, bpftest.Packet{Data: tagged})
}

// Without a valid configuration packets pass as they are, and that is counted.
func TestPrivilegedFailOpen(t *testing.T) {
	d := bpftest.Load(t)
	for name, cfg := range invalidConfigs() {
		for program := range allowedVerdicts {
			if program == "pw_guard" {
				continue // it has no configuration
			}
			t.Run(name+" "+program, func(t *testing.T) { failOpen(t, d.For(t), cfg, program) })
		}
	}
}

func failOpen(t *testing.T, d *bpftest.Dataplane, cfg image.Config, program string) {
	t.Helper()
	d.WriteConfig(cfg, newDirection(1e6, terms.PolicyStrict).Keys)
	p := bpftest.Packet{Data: bpftest.Corpus()["UDP with ECT(0)"], Stamp: 77, Priority: 9}
	before, bytesBefore := d.Counters()
	r := d.MustRun(program, &p)
	after, bytesAfter := d.Counters()
	if r.Verdict == verdictDrop {
		t.Errorf("%s drops without a configuration", program)
	}
	if r.Stamp != p.Stamp || r.Priority != p.Priority {
		t.Errorf("stamp and priority are %d and %d, want them untouched (%d, %d)", r.Stamp, r.Priority, p.Stamp, p.Priority)
	}
	if program == "pw_class_probe" && r.ClassID != 2 {
		t.Errorf("class is %d, want 2, within the cap", r.ClassID)
	}
	const reason = image.FailopenConfig
	must.Be(t, fmt.Sprintf("packets counted as %v", reason), 1, after[reason]-before[reason])
	must.Be(t, fmt.Sprintf("bytes counted as %v", reason), uint64(len(p.Data)), bytesAfter[reason]-bytesBefore[reason])
}

// Without a slot packets pass, and the programs behind see them.
func TestPrivilegedNoSlot(t *testing.T) {
	d := bpftest.Load(t)
	d.RemoveSlot()
	p := bpftest.Packet{Data: bpftest.Corpus()["UDP with ECT(0)"]}
	for program, allowed := range allowedVerdicts {
		must.Be(t, program+" without a slot", allowed[0], d.MustRun(program, &p).Verdict)
	}
}

// A process that sets skb->priority to a class of our qdisc does not choose
// its band; what is no class stays.
func TestPrivilegedGuard(t *testing.T) {
	d := bpftest.Load(t)
	for preset, want := range map[uint32]uint32{0: 0, 6: 6, 0xffff: 0xffff, 0x10000: 0, 0x50001: 0, 0xffffffff: 0} {
		r := d.MustRun("pw_guard", &bpftest.Packet{Data: make([]byte, 64), Priority: preset})
		if r.Verdict != verdictNext || r.Priority != want {
			t.Errorf("pw_guard turns priority %#x into %#x and answers %d, want %#x and %d", preset, r.Priority, r.Verdict, want, verdictNext)
		}
	}
}
