// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestProfilesAreValid(t *testing.T) {
	for name, s := range Profiles() {
		must.Be(t, "a profile's own name", name, s.Profile)
		// One name means one thing, by which samples are compared.
		seen := map[string]any{}
		one := func(name string, v any) {
			if old, ok := seen[name]; ok && !cmp.Equal(old, v) {
				t.Errorf("%s is two different things: %v and %v", name, old, v)
			}
			seen[name] = v
		}
		cells, samples := s.Cells()
		for _, c := range cells {
			one("phase "+c.Phase.Name, c.Phase)
			one("workload "+c.Workload.Name, c.Workload)
			if c.Phase.Name == "" || c.Workload.Name == "" || c.Workload.Seconds <= 0 || samples[c.ID()] < 1 {
				t.Errorf("cell %s: a name, its duration or the number of samples is missing", c.ID())
			}
		}
	}
	must.Fail(t, "Profile(hourly)", must.Err(Profile("hourly")), "costs, loads, rivals, scale")
}

// example is a spec with three groups, an unshaped phase, and fewer or more
// samples in some blocks.
func example() *Spec {
	a, b := Phase{Name: "a", Kind: Podweir}, Phase{Name: "b", Kind: Bandwidth}
	w := func(name string) []Workload { return []Workload{{Name: name, Kind: Sweep, Seconds: 2}} }
	return &Spec{Profile: "example", Samples: 4, Blocks: []Block{
		{Phases: []Phase{unshaped, a, b}, Rates: []uint64{mbit, 10 * mbit}, Workloads: w("one")},
		{Phases: []Phase{a}, Workloads: w("two"), Samples: 1},
		{Phases: []Phase{b}, Rates: []uint64{mbit}, Workloads: w("one"), Samples: 2},
		{Phases: []Phase{b}, Workloads: w("three"), Samples: 5},
	}}
}

func TestPlanHoldsEverySampleOfEveryCellOnce(t *testing.T) {
	got := map[string]int{}
	plan := example().Plan()
	for i := range plan {
		got[plan[i].ID()]++
	}
	want := map[string]int{"two/uncapped/a#00": 1}
	for round := range 5 {
		want[fmt.Sprintf("three/uncapped/b#%02d", round)] = 1
	}
	for round := range 4 {
		for _, id := range []string{"one/uncapped/unshaped", "one/1M/a", "one/1M/b", "one/10M/a", "one/10M/b"} {
			want[fmt.Sprintf("%s#%02d", id, round)] = 1
		}
	}
	must.Match(t, "runs", want, got)
	must.Be(t, "Duration", 52*time.Second, Duration(plan))
}

// TestPlanInterleaves: no round begins before the last has ended, and the
// phases that are compared stand beside one another, in changing order.
func TestPlanInterleaves(t *testing.T) {
	plan := rivals().Plan()
	firsts := map[string]bool{}
	orders := map[int]string{}
	last := ""
	finished := map[string]bool{}
	for i := range plan {
		r := &plan[i]
		if i > 0 && r.Round < plan[i-1].Round {
			t.Fatalf("run %s stands behind one of round %d", r.ID(), plan[i-1].Round)
		}
		rate := r.Cell.Rate
		if r.Cell.Phase.Kind == Unshaped {
			continue // stands in one of the groups of its workload
		}
		now := fmt.Sprint(r.Round, r.Cell.Workload.Name, rate)
		if now != last {
			if finished[now] {
				t.Fatalf("run %s is apart from its group", r.ID())
			}
			finished[last], last = true, now
			orders[r.Round] += fmt.Sprintln(r.Cell.Workload.Name, rate)
			if r.Cell.Workload.Name == "latency-ingress" && rate == 100*mbit {
				firsts[r.Cell.Phase.Name] = true
			}
		}
	}
	if orders[0] == orders[1] {
		t.Error("two rounds have the same order of workloads")
	}
	must.AtLeast(t, "workloads that a round of latency-ingress begins with", 2, len(firsts))
}

// The phase of the reference plugin is called by the release that the rig builds.
func TestPhaseHasTheReleaseOfThePlugin(t *testing.T) {
	mod := must.Get(os.ReadFile("../../../e2e/k8s/components/go.mod"))(t)
	release := strings.TrimPrefix(BandwidthPlugin, "bandwidth-")
	must.Have(t, "e2e/k8s/components/go.mod", string(mod), "github.com/containernetworking/plugins v"+release+".")
}
