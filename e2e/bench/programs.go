// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	// programBar is the light path in ns, programSpread what any path may cost
	// of the light one of its program.
	programBar    = 60.0
	programSpread = 1.3
)

// benchPrograms runs the benchmark of package bpf, which is a test because it
// needs its fixtures.
func benchPrograms(ctx context.Context, rep *report) (err error) {
	dir, err := os.MkdirTemp("", "podweir-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "programs.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "Programs", "-benchtime", "1x", "./bpf")
	cmd.Env = append(os.Environ(), "PODWEIR_BENCH_JSON="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -bench: %w: %s", err, out)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var result struct {
		Programs []struct {
			Program      string  `json:"program"`
			Path         string  `json:"path"`
			NSPerPacket  float64 `json:"nsPerPacket"`
			Instructions int     `json:"instructions"`
			LoadMicros   float64 `json:"loadMicros"`
		} `json:"programs"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return err
	}
	t := rep.table("Cost per packet",
		"BPF_PROG_TEST_RUN, minimum of 7 runs of 500,000 TCP packets of 1,500 bytes, less an empty program.",
		"program", "path", "ns", "verified instructions", "load, µs")
	light := map[string]float64{}
	for _, p := range result.Programs {
		t.row(p.Program, p.Path, fmt.Sprintf("%.1f", p.NSPerPacket), fmt.Sprint(p.Instructions), fmt.Sprintf("%.0f", p.LoadMicros))
		if p.Path == "light" {
			light[p.Program] = p.NSPerPacket
			rep.bar(p.NSPerPacket <= programBar, p.Program+", light", fmt.Sprintf("%.1f ns", p.NSPerPacket),
				fmt.Sprintf("at most %.0f ns", programBar))
			continue
		}
		ratio := p.NSPerPacket / light[p.Program]
		rep.bar(ratio <= programSpread, p.Program+", "+p.Path+" / light", fmt.Sprintf("%.2f", ratio),
			fmt.Sprintf("at most %.1f", programSpread))
	}
	return nil
}
