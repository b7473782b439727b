// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"testing"

	"github.com/podweir/podweir/tools/perfrig/record"
)

func TestStatusField(t *testing.T) {
	const text = "Name:\tpodweir\nRssAnon:\t    8192 kB\nRssFile:\t 100 kB\nBad:\tmany\n"
	if got, err := statusField(text, "RssAnon"); got != 8<<20 || err != nil {
		t.Errorf("RssAnon = %d, %v; want 8 MiB", got, err)
	}
	for _, name := range []string{"RssShmem", "Bad"} {
		if got, err := statusField(text, name); err == nil {
			t.Errorf("%s = %d, want an error", name, got)
		}
	}
}

func TestSumOfSeries(t *testing.T) {
	const page = "# HELP podweir_x things\npodweir_x{outcome=\"a b\"} 3\npodweir_x{outcome=\"c\"} 4\npodweir_x_total 100\npodweir_y 7\n"
	for name, want := range map[string]float64{"podweir_x": 7, "podweir_y": 7, "podweir_x_total": 100, "podweir_z": 0} {
		if got := sumOfSeries([]byte(page), name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// TestPrivilegedMemoryWeighsAgentAndADD: both are processes of their own, the
// agent has looked at the pods, and everything is told.
func TestPrivilegedMemoryWeighsAgentAndADD(t *testing.T) {
	requireRoot(t)
	into := &record.Sample{}
	if err := New(root).Run(t.Context(), cell(t, "scale", "memory-8/100M/podweir-strict"), into); err != nil {
		t.Fatal(err)
	}
	t.Log(into.Metrics)
	// A Go program has a megabyte, and neither is a fourth of a gigabyte.
	for _, name := range []string{"agent_rss_p50_bytes", "agent_rss_max_bytes", "add_rss_p50_bytes"} {
		if got := into.Metrics[name]; got < 1<<20 || got > 1<<28 {
			t.Errorf("%s = %.0f, want megabytes", name, got)
		}
	}
	if _, ok := into.Metrics["memory_pagetables_bytes"]; !ok {
		t.Error("nothing of page tables")
	}
	if got := left(t); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}
