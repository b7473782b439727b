// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// benchJSON names the environment variable with the file for the results.
const benchJSON = "PODWEIR_BENCH_JSON"

const (
	benchRounds  = 7
	benchPackets = 500_000
	benchLoads   = 5
)

// benchPath is one way of a packet through a program.
type benchPath struct {
	program, path string
	// heavy makes the flow heavy, ahead puts the total meter past its burst, but not as
	// far as the queue may get before flows lose packets for having more than their share.
	heavy, ahead bool
	ecn          uint8
	// counted is the disposition that all packets must have had.
	counted uint32
}

func benchPaths() []benchPath {
	return []benchPath{
		{program: "pw_class", path: "light", counted: 0},
		{program: "pw_class", path: "heavy", heavy: true, counted: 2},
		{program: "pw_band", path: "light", counted: 0},
		{program: "pw_band", path: "metered", heavy: true, counted: 2},
		{program: "pw_police", path: "light", counted: 0},
		{program: "pw_police", path: "heavy", heavy: true, counted: 1},
		{program: "pw_police", path: "metered", heavy: true, ahead: true, ecn: 3, counted: 3},
		{program: "pw_ceiling", path: "passed", counted: uint32(image.Dispositions)},
	}
}

// benchResult is what one path costs beyond an empty program.
type benchResult struct {
	Program      string  `json:"program"`
	Path         string  `json:"path"`
	NSPerPacket  float64 `json:"nsPerPacket"`
	EmptyNS      float64 `json:"emptyNs"`
	Instructions int     `json:"instructions"`
	LoadMicros   float64 `json:"loadMicros"`
}

// BenchmarkPrograms measures each path of each program: the minimum of 7 runs
// of 500,000 TCP packets of 1500 bytes by BPF_PROG_TEST_RUN, less the same of
// an empty program. It measures once however often it is called. The paths take
// turns, so that what else the machine does for a second does not fall on one of
// them.
func BenchmarkPrograms(b *testing.B) {
	bpftest.RequireRoot(b)
	empty := &benchRun{program: emptyProgram(b), packet: tcpPacket(0), least: time.Hour}
	runs := []*benchRun{empty}
	for _, path := range benchPaths() {
		runs = append(runs, prepare(b, &path, benchLoads))
	}
	for range benchRounds {
		for _, r := range runs {
			r.run(b, benchPackets)
		}
	}
	results := make([]benchResult, 0, len(runs))
	for _, r := range runs[1:] {
		r.checkCounters(b)
		r.result.NSPerPacket = float64(r.least - empty.least)
		r.result.EmptyNS = float64(empty.least)
		results = append(results, r.result)
		b.Run(r.path.program+"/"+r.path.path, func(b *testing.B) {
			b.ReportMetric(r.result.NSPerPacket, "ns/packet")
			b.ReportMetric(0, "ns/op")
		})
	}
	writeResults(b, results)
}

// TestPrivilegedBenchPaths sees that each path of the benchmark is the one
// that it is named after: a new rule in a program can lead its packets elsewhere.
func TestPrivilegedBenchPaths(t *testing.T) {
	mark.NightlyKernels(t, "which path a packet takes does not depend on the kernel")
	for _, path := range benchPaths() {
		t.Run(path.program+"/"+path.path, func(t *testing.T) {
			r := prepare(t, &path, 1)
			r.run(t, 10_000)
			r.checkCounters(t)
		})
	}
}

// benchRun is a path that is ready to be measured.
type benchRun struct {
	path      benchPath
	dataplane *bpftest.Dataplane
	program   *ebpf.Program
	packet    []byte
	least     time.Duration
	sent      int
	result    benchResult
}

func prepare(tb testing.TB, path *benchPath, loads int) *benchRun {
	tb.Helper()
	d, load := loadOne(tb, path.program, loads)
	m := newDirection(10e9, terms.PolicyStrict)
	m.Config.LightRate = image.Rate{Mult: 1, Shift: 40}
	m.Config.TotalRate = image.Rate{Mult: 1, Shift: 40}
	m.Config.CeilingRate = m.Config.TotalRate
	m.Config.TotalHorizon = meterTime(time.Hour / 2)
	m.Config.SketchRate = image.Rate{Mult: 1, Shift: 40}
	if path.heavy {
		m.Config.SketchRate = image.Rate{Mult: 1 << 40}
	}
	if path.ahead {
		m.Config.FairLeast, m.Config.FairMost = m.Config.TotalHorizon, m.Config.TotalHorizon
	}
	d.WriteConfig(datapath.Config(&m.Config, 0), m.Keys)
	if path.ahead {
		d.WriteState(&image.State{TotalTat: (monotonicNS(tb) + uint64(10*time.Minute)) << 6})
	}
	return &benchRun{
		path: *path, dataplane: d, program: d.Program(path.program), packet: tcpPacket(path.ecn), least: time.Hour,
		result: benchResult{
			Program: path.program, Path: path.path, Instructions: instructions(tb, path.program),
			LoadMicros: float64(load) / float64(time.Microsecond),
		},
	}
}

func (r *benchRun) run(tb testing.TB, packets int) {
	tb.Helper()
	_, took, err := r.program.Benchmark(r.packet, packets, nil)
	if err != nil {
		tb.Fatalf("run %v: %v", r.program, err)
	}
	r.least = min(r.least, took)
	r.sent += packets
}

// checkCounters fails if a packet took another path, or was not counted.
func (r *benchRun) checkCounters(tb testing.TB) {
	tb.Helper()
	packets, _ := r.dataplane.Counters()
	for i, n := range packets {
		if n != 0 && i != int(r.path.counted) {
			tb.Errorf("%s %s: %d packets had disposition %d", r.path.program, r.path.path, n, i)
		}
	}
	if i := int(r.path.counted); i < len(packets) && packets[i] < uint64(r.sent) {
		tb.Errorf("%s %s: %d of %d packets had disposition %d", r.path.program, r.path.path, packets[i], r.sent, i)
	}
}

// loadOne loads one program and the maps that it uses, as an attachment does,
// and returns the least time of so many that it took.
func loadOne(tb testing.TB, program string, loads int) (*bpftest.Dataplane, time.Duration) {
	tb.Helper()
	least := time.Hour
	var d *bpftest.Dataplane
	for range loads {
		spec := oneProgram(tb, program)
		start := time.Now()
		d = bpftest.LoadSpec(tb, spec)
		least = min(least, time.Since(start))
	}
	return d, least
}

// oneProgram is the shipped object reduced to a program and its maps, without
// the line information, which the loader does not load either.
func oneProgram(tb testing.TB, program string) *ebpf.CollectionSpec {
	tb.Helper()
	spec := must.Get(bpf.LoadPodweir())(tb)
	p := spec.Programs[program]
	if p == nil {
		tb.Fatalf("no program %q", program)
	}
	used := map[string]*ebpf.MapSpec{}
	for i, ins := range p.Instructions {
		if m := spec.Maps[ins.Reference()]; m != nil {
			m.Key, m.Value = nil, nil
			used[ins.Reference()] = m
			if m.InnerMap != nil {
				used["pw_chunk"] = spec.Maps["pw_chunk"]
			}
		}
		p.Instructions[i] = plain(ins)
	}
	return &ebpf.CollectionSpec{
		Programs: map[string]*ebpf.ProgramSpec{program: p}, Maps: used, ByteOrder: spec.ByteOrder,
	}
}

func plain(ins asm.Instruction) asm.Instruction {
	out := asm.Instruction{
		OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Offset: ins.Offset, Constant: ins.Constant,
	}
	if ref := ins.Reference(); ref != "" {
		out = out.WithReference(ref)
	}
	if symbol := ins.Symbol(); symbol != "" {
		out = out.WithSymbol(symbol)
	}
	return out
}

func instructions(tb testing.TB, program string) int {
	tb.Helper()
	return len(oneProgram(tb, program).Programs[program].Instructions)
}

func emptyProgram(tb testing.TB) *ebpf.Program {
	tb.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		tb.Fatalf("load an empty program: %v", err)
	}
	tb.Cleanup(func() { must.OK(tb, p.Close()) })
	return p
}

// tcpPacket is a full-size TCP packet, 1514 bytes with its Ethernet header.
func tcpPacket(ecn uint8) []byte {
	return bpftest.Build(1460, bpftest.Ethernet(0x0800),
		bpftest.IPv4("10.0.0.1", "192.0.2.9", 6, ecn, 0, 0), bpftest.TCP(40000, 443, 5))
}

func monotonicNS(tb testing.TB) uint64 {
	tb.Helper()
	var ts unix.Timespec
	must.OK(tb, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return uint64(ts.Nano())
}

func writeResults(b *testing.B, results []benchResult) {
	b.Helper()
	path := os.Getenv(benchJSON)
	if path == "" {
		return
	}
	var release unix.Utsname
	must.OK(b, unix.Uname(&release))
	out, err := json.MarshalIndent(map[string]any{
		"kernel":   strings.TrimRight(string(release.Release[:]), "\x00"),
		"programs": results,
	}, "", "  ")
	must.OK(b, err)
	must.OK(b, os.WriteFile(path, append(out, '\n'), 0o600))
}
