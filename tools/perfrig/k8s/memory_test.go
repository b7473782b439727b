// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/podweir/podweir/tools/perfrig/record"
)

func TestBelowFollowsParents(t *testing.T) {
	parents := map[int]int{10: 1, 11: 10, 12: 11, 20: 1}
	for pid, want := range map[int]bool{10: true, 11: true, 12: true, 20: false, 1: false, 99: false} {
		if got := below(parents, pid, 10); got != want {
			t.Errorf("below(%d, 10) = %v, want %v", pid, got, want)
		}
	}
}

// TestWatchMemorySeesAnAgentBelowAProcess: a program by the agent's name, which
// this process has started.
func TestWatchMemorySeesAnAgentBelowAProcess(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "podweir")
	if err := os.WriteFile(program, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(program, "1000")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Kill()
		_ = agent.Wait() // a signal is how it ends
	})
	metrics := map[string]float64{}
	watchMemory(os.Getpid())().into(metrics)
	for _, name := range []string{"agent_rss_bytes", "agent_anonymous_rss_bytes"} {
		if metrics[name] < float64(os.Getpagesize()) {
			t.Errorf("%s = %v, want a page or more", name, metrics[name])
		}
		if m, ok := record.Describe(name); !ok || m.Better != record.Lower {
			t.Errorf("Describe(%s) = %+v, %v; want memory, of which less is better", name, m, ok)
		}
	}
	if metrics["agent_anonymous_rss_bytes"] > metrics["agent_rss_bytes"] {
		t.Errorf("more is anonymous than resident: %v", metrics)
	}
	const kernelThreads = 2
	if got := watchMemory(kernelThreads)(); len(got) > 0 {
		t.Errorf("below another process there is %v, want nothing", got)
	}
}
