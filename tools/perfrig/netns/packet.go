// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/podweir/podweir/e2e/step"
)

// program is what the benchmarks of package bpf tell of one path of a program.
type program struct {
	Program      string  `json:"program"`
	Path         string  `json:"path"`
	NSPerPacket  float64 `json:"nsPerPacket"`
	Instructions int     `json:"instructions"`
	LoadMicros   float64 `json:"loadMicros"`
}

// packet measures the time of each program for a packet, less an empty one's.
func (r *run) packet(ctx context.Context) {
	programs := r.benchmark(ctx)
	light := map[string]float64{}
	for _, p := range programs {
		r.set(p.Program+"_"+p.Path+"_cost_ns", p.NSPerPacket)
		if p.Path == "light" {
			light[p.Program] = p.NSPerPacket
			r.set(p.Program+"_instructions_count", float64(p.Instructions))
			r.set(p.Program+"_load_cost_ms", p.LoadMicros/1000)
		} else if light[p.Program] > 0 {
			r.set(p.Program+"_"+p.Path+"_cost_ratio", p.NSPerPacket/light[p.Program])
		}
	}
}

// benchmark runs that of package bpf, which is a test because it needs the tests'
// fixtures.
func (r *run) benchmark(ctx context.Context) []program {
	dir := step.Get(os.MkdirTemp("", "podweir-perfrig-"))
	defer step.Close(func() error { return os.RemoveAll(dir) })
	file := filepath.Join(dir, "programs.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkPrograms$", "-benchtime", "1x", "./bpf")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "PODWEIR_BENCH_JSON="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		step.OK(fmt.Errorf("go test -bench: %w: %s", err, out))
	}
	var result struct {
		Programs []program `json:"programs"`
	}
	step.OK(json.Unmarshal(step.Get(os.ReadFile(file)), &result))
	return result.Programs
}
