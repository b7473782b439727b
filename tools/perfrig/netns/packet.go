// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// packet runs the benchmark of package bpf, which is a test because it needs
// its fixtures: the time of each program for a packet, less an empty one's.
func (r *run) packet(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "podweir-perfrig-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "programs.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "Programs", "-benchtime", "1x", "./bpf")
	cmd.Dir = r.root
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
	light := map[string]float64{}
	for _, p := range result.Programs {
		r.set(p.Program+"_"+p.Path+"_cost_ns", p.NSPerPacket)
		if p.Path == "light" {
			light[p.Program] = p.NSPerPacket
			r.set(p.Program+"_instructions_count", float64(p.Instructions))
			r.set(p.Program+"_load_cost_ms", p.LoadMicros/1000)
		} else if light[p.Program] > 0 {
			r.set(p.Program+"_"+p.Path+"_cost_ratio", p.NSPerPacket/light[p.Program])
		}
	}
	return nil
}
