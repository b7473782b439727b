// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

func podsWorkload(kind spec.WorkloadKind, pods int) spec.Workload {
	return spec.Workload{Name: fmt.Sprintf("%s-%d", kind, pods), Kind: kind, Pods: pods}
}

// fullNode is a campaign of one and of 110 pods; over says by how much the
// latter cost more.
func fullNode(over float64) *record.Results {
	r := &record.Results{}
	for round := range 3 {
		for pods, by := range map[int]float64{1: 1, 110: over} {
			packets := map[string]float64{
				"alone_light_cost_ns": 70 * by, "spread_light_cost_ns": 70 * by, "spread_light_cost_ratio": by,
			}
			r.Samples = append(r.Samples,
				sample(ours, podsWorkload(spec.Pods, pods), round, packets), sample(theirs, podsWorkload(spec.Pods, pods), round, nil),
				sample(ours, podsWorkload(spec.Memory, pods), round, map[string]float64{"agent_rss_max_bytes": 14 * by * (1 << 20), "memory_total_bytes": 79 << 10}))
		}
	}
	return r
}

func TestFullNodeIsHeldToOnePod(t *testing.T) {
	got := map[string]string{}
	for over, where := range map[float64]string{1.05: "flat", 3.3: "steep"} {
		for what, word := range words(Bars(fullNode(over))) {
			got[where+", "+what] = word
		}
	}
	want := map[string]string{}
	for where, word := range map[string]string{"flat": "ok", "steep": "MISS"} {
		for what, word := range map[string]string{
			"pods-1/10M/podweir-strict: light packets to all pods in turns, relative to one pod":            "ok",
			"pods-110/10M/podweir-strict: light packets to all pods in turns, relative to one pod":          word,
			"pods-110/10M/podweir-strict: light packets to one pod, relative to a node with that pod alone": word,
			"memory-1/10M/podweir-strict: the agent's anonymous memory":                                     "ok",
			"memory-110/10M/podweir-strict: the agent's anonymous memory":                                   word,
		} {
			want[where+", "+what] = word
			want[where+", memory-110/10M/podweir-strict: kernel memory per pod"] = "ok"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
}

func TestCellsAreInTheOrderOfPods(t *testing.T) {
	r := &record.Results{}
	for _, pods := range []int{250, 8, 1, 110} {
		r.Samples = append(r.Samples, sample(ours, podsWorkload(spec.Memory, pods), 0, nil))
	}
	var got []int
	for _, c := range cellsOf(r, spec.Memory) {
		got = append(got, c.Workload.Pods)
	}
	if !slices.IsSorted(got) {
		t.Errorf("pods %v, want them ascending", got)
	}
}
