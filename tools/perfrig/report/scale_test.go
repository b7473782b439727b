// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/e2e/figures"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

func flowsOf(n int, name string) spec.Workload {
	return spec.Workload{Name: name, Kind: spec.Flows, Direction: "ingress", Flows: n, PacketsPerSecond: 1000, BulkSeconds: 10}
}

// TestFlowCosts: the points of a line are in order with bars over their samples, and flows that send once are
// none of them.
func TestFlowCosts(t *testing.T) {
	cost := func(ns float64) map[string]float64 { return map[string]float64{"packet_cost_ns": ns} }
	r := &record.Results{Samples: []record.Sample{
		sample(ours, flowsOf(9000, "b"), 0, cost(70)), sample(ours, flowsOf(10, "a"), 0, cost(60)),
		sample(ours, flowsOf(10, "a"), 1, cost(64)), sample(ours, flowsOf(10_000, "fresh"), 0, cost(90)),
		sample(lightly, flowsOf(10, "a"), 0, cost(50)),
	}}
	var got [][]figures.Point
	for _, l := range flowCosts(r) {
		if want := "podweir-strict, ingress at 10M"; l.Name != want {
			t.Errorf("a line is called %q, want %q", l.Name, want)
		}
		got = append(got, l.Points)
	}
	if diff := cmp.Diff([][]figures.Point{{{X: 10, Y: 62, Bar: figures.Bar{Low: 60, High: 64}}, {X: 9000, Y: 70, Bar: figures.Bar{Low: 70, High: 70}}}}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	dir := t.TempDir()
	charts, err := drawAll(dir, r)
	if err != nil {
		t.Fatal(err)
	}
	if len(charts) == 0 || charts[len(charts)-1].File != "flows-cost.svg" {
		t.Fatalf("charts = %v, want that of the cost at the end", charts)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "flows-cost.svg"))
	if err != nil || !strings.Contains(string(raw), "podweir-strict, ingress at 10M") {
		t.Errorf("the chart does not name its line: %v", err)
	}
}

// TestBarOfCollisions: a victim that is taken for heavy is a miss, but not where
// the attacker was given the key.
func TestBarOfCollisions(t *testing.T) {
	attack := func(variant string) spec.Workload {
		return spec.Workload{Name: "attack-" + variant + "-ingress", Kind: spec.Attack, Variant: variant, Direction: "ingress"}
	}
	heavy := func(share float64) map[string]float64 { return map[string]float64{"victim_heavy_share": share} }
	r := &record.Results{Samples: []record.Sample{
		sample(ours, attack("collide"), 0, heavy(0.02)), sample(lightly, attack("collide"), 0, heavy(0.009)),
		sample(ours, attack("collide-known"), 0, heavy(1)), sample(ours, attack("ports"), 0, heavy(1)),
		sample(better, attack("collide"), 0, nil),
	}}
	want := map[string]string{
		"attack-collide-ingress/10M/podweir-strict: kept connection taken for heavy":    "MISS",
		"attack-collide-ingress/10M/podweir-elephants: kept connection taken for heavy": "ok",
	}
	if diff := cmp.Diff(want, words(Bars(r))); diff != "" {
		t.Errorf("Bars (-want +got):\n%s", diff)
	}
}
