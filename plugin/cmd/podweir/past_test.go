// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil"
)

// What a pod's device carries past podweir is counted and shown: a pod without a ceiling is
// not limited then, and one with a ceiling is.
func TestPrivilegedStatusCountsWhatGoesPast(t *testing.T) {
	testutil.RequireRoot(t)
	for ceiling, want := range map[string][]string{
		"off": {"NOT LIMITED", "egress of eth0: its device carries", "past podweir, which sees"},
		"on":  {"is limited as it should be", "go past its queue: a process in the pod goes around the queue with a packet socket"},
	} {
		c := newCLI(t)
		n := &nightNode{cli: c, testNode: &testNode{}}
		c.must(t, append(c.netns(), "attach", "--egress", "10M", "--egress-ceiling", ceiling)...)
		if out := c.must(t, "status"); !strings.Contains(out, "      0  idle\n") {
			t.Errorf("ceiling %s, nothing is sent:\n%s", ceiling, out)
		}
		n.rawSocket(t)
		out := ""
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			out, _ = c.do(t, "status")
			if strings.Contains(oneLine(out), want[0]) && strings.Contains(oneLine(out), want[1]) {
				break
			}
		}
		for _, part := range want {
			if !strings.Contains(oneLine(out), part) {
				t.Errorf("ceiling %s: status has no %q:\n%s", ceiling, part, out)
			}
		}
	}
}
