// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// chartCapabilities are those that the chart gives the agent everywhere. SYS_PTRACE,
// which it gives where it mounts the node's root, is for what others' processes are.
var chartCapabilities = []string{"net_admin", "sys_admin"}

// with makes a command run with these capabilities alone.
func with(capabilities []string, argv ...string) []string {
	set := "-all"
	for _, c := range capabilities {
		set += ",+" + c
	}
	return append([]string{"setpriv", "--bounding-set=" + set, "--inh-caps=-all"}, argv...)
}

// TestPrivilegedAgentCapabilities: the agent shapes pods with the chart's capabilities and
// no others, and without any one of them it is not ready and says which it lacks.
func TestPrivilegedAgentCapabilities(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Fatal(err)
	}
	n := newTestNode(t)
	n.pod(t, 1, map[string]string{"kubernetes.io/egress-bandwidth": "10M", "kubernetes.io/ingress-bandwidth": "10M"})
	for i, missing := range chartCapabilities {
		others := append(append([]string{}, chartCapabilities[:i]...), chartCapabilities[i+1:]...)
		a := n.startAs(t, with(others))
		a.until(t, 20*time.Second, "the agent says that it lacks "+missing, func() (bool, string) {
			ready, text := a.ready(t.Context())
			return !ready && strings.Contains(text, "CAP_"+strings.ToUpper(missing)), text
		})
		if have := a.outcomes("attached"); have != 0 {
			t.Errorf("without %s %d pods are shaped", missing, have)
		}
		a.end()
	}
	a := n.startAs(t, with(chartCapabilities))
	a.until(t, time.Minute, "the pod is shaped", func() (bool, string) { return a.outcomes("attached") == 1, "it is not" })
	a.until(t, time.Minute, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })
}

// TestPrivilegedProcessesOfOthers: what SYS_PTRACE is for. Names and arguments of processes
// need nothing.
func TestPrivilegedProcessesOfOthers(t *testing.T) {
	for _, ptrace := range []bool{false, true} {
		capabilities := chartCapabilities
		if ptrace {
			capabilities = append(slices.Clip(capabilities), "sys_ptrace")
		}
		for file, want := range map[string]bool{"exe": ptrace, "root": ptrace, "ns/mnt": ptrace, "cmdline": true} {
			argv := with(capabilities, "stat", "--dereference", "--format=%n", fmt.Sprintf("/proc/%d/%s", os.Getpid(), file))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
			cancel()
			if can := err == nil; can != want {
				t.Errorf("SYS_PTRACE %v: /proc/PID/%s is readable: %v, want %v: %s", ptrace, file, can, want, out)
			}
		}
	}
}
