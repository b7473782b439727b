// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/podweir/podweir/plugin/status/cluster"
)

// BenchmarkFiveHundredNodes runs the program against 500 agents with 100 pods each. Their
// answers are made beforehand; the API server that is played is another process, on the
// same machine. cpu-s and peak-MB are the program's own.
func BenchmarkFiveHundredNodes(b *testing.B) {
	program := filepath.Join(b.TempDir(), "kubectl-podweir")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	f := start(b, &fakeCluster{nodes: 500, pods: 100, sick: []string{"n7", "n19"}})
	f.make(2)
	kubeconfig := f.kubeconfig(b)
	for _, c := range []struct {
		command string
		exit    int
	}{{"status", cluster.ExitBroken}, {"doctor", cluster.ExitBroken}, {"top --count 1", 0}, {"explain team-a/n499-0", 0}} {
		args := strings.Fields(c.command)
		b.Run(args[0], func(b *testing.B) {
			var used, peak float64
			for b.Loop() {
				f.forget()
				cmd := exec.CommandContext(b.Context(), program, append(args, "--kubeconfig", kubeconfig)...)
				if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.exit {
					b.Fatalf("%s: %v, want exit status %d", c.command, err, c.exit)
				}
				used += (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
				peak = max(peak, float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)/1e3)
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/op")
			b.ReportMetric(used/float64(b.N), "cpu-s/op")
			b.ReportMetric(peak, "peak-MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}
