// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil"
)

// TestPrivilegedDefaultThatNoPodCanHave: a default that the kernel lacks stops a rollout,
// since the agent is not ready and says why, and one that a rate cannot have does not.
func TestPrivilegedDefaultThatNoPodCanHave(t *testing.T) {
	testutil.RequireQdisc(t, "htb")
	n := newTestNode(t)
	n.write(t, "agent.yaml", "default: [queue=htb]\n")
	by := []string{"env", "PODWEIR_CONFIG=" + filepath.Join(n.root, "agent.yaml")}
	a := n.startAs(t, by)
	a.until(t, time.Minute, "the agent is ready", func() (bool, string) { return a.ready(t.Context()) })
	a.end()

	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	// A kernel that lacks HTB.
	features := `{"boot":"` + strings.TrimSpace(string(boot)) + `","Prio":true,"FQ":true,"TBF":true,"IFB":true,"tcx":true,"redirect":"bpf"}`
	if err := os.WriteFile(filepath.Join(n.run, "features.json"), []byte(features), 0o600); err != nil {
		t.Fatal(err)
	}
	a = n.startAs(t, by)
	const want = "not ready: defaults: not the queue htb: the kernel lacks it"
	a.until(t, time.Minute, "all parts but the defaults are ready", func() (bool, string) {
		ok, text := a.ready(t.Context())
		return !ok && strings.Contains(text, want) && strings.Count(text, "not ready: ") == 1, text
	})
}
