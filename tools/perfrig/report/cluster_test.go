// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/tools/perfrig/record"
)

// inCluster are two runs of a cluster and one that failed.
func inCluster(anonymousMiB ...float64) *record.Results {
	r := &record.Results{}
	for round, mib := range anonymousMiB {
		r.Samples = append(r.Samples, sample(ours, sweep, round, map[string]float64{
			"agent_anonymous_rss_bytes": mib * (1 << 20), "agent_rss_bytes": 2 * mib * (1 << 20),
			"kubelet_anonymous_rss_bytes": 40 << 20, "kubelet_rss_bytes": 80 << 20,
		}))
	}
	failed := sample(ours, sweep, len(anonymousMiB), map[string]float64{"agent_anonymous_rss_bytes": 1 << 40})
	failed.Failed = "no pod"
	r.Samples = append(r.Samples, failed)
	return r
}

func TestClusterMemoryIsOfEachPhase(t *testing.T) {
	got := clusterMemory(inCluster(6, 8)).Rows
	want := [][]string{{"podweir-strict", "2", "7.00 ± 1.41", "8.00", "14.00 ± 2.83", "16.00", "40.00 ± 0.00", "80.00 ± 0.00"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for _, table := range Tables(results()) {
		if strings.Contains(table.Title, "agent") {
			t.Errorf("without a cluster there is a table %q", table.Title)
		}
	}
}

func TestAgentIsHeldToItsMemory(t *testing.T) {
	for mib, want := range map[float64]string{14.9: "ok", 15.1: "MISS"} {
		const what = "the agent's anonymous memory, most of all runs"
		if got := words(Bars(inCluster(6, mib)))[what]; got != want {
			t.Errorf("%.1f MiB: %q, want %q", mib, got, want)
		}
	}
}

func TestPageNamesWhatRunsThePods(t *testing.T) {
	r := results()
	const row = "| what runs the pods | kubelet v1 |"
	if strings.Contains(string(markdown(r, nil)), "what runs the pods") {
		t.Error("a page without software has a row for it")
	}
	r.Campaign.Machine.Software = "kubelet v1"
	if page := string(markdown(r, nil)); !strings.Contains(page, row) {
		t.Errorf("the page lacks %q:\n%s", row, page)
	}
}
