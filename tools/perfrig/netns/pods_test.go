// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// TestPathThatWasNotTakenIsNotTold: a light packet among heavy ones is one of the
// time before the flow was known; many are another measurement.
func TestPathThatWasNotTakenIsNotTold(t *testing.T) {
	for _, tc := range []struct {
		path       string
		all, light uint64
		ok         bool
	}{
		{"light", 100, 100, true},
		{"light", 100, 50, false},
		{"heavy", 100, 5, true},
		{"heavy", 100, 50, false},
		{"heavy", 0, 0, false},
	} {
		a := &among{run: &run{
			cell: &spec.Cell{Phase: spec.Phase{Kind: spec.Podweir}}, into: &record.Sample{Metrics: map[string]float64{}},
		}}
		if err := a.took(tc.path, tc.all, tc.light); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// described holds every metric of a sample against what may be recorded.
func described(t *testing.T, s *record.Sample) {
	t.Helper()
	for name := range s.Metrics {
		if _, ok := record.Unit(name); !ok {
			t.Errorf("%s does not end with a unit", name)
		}
	}
	if got := left(t); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// TestPrivilegedPacketsOfManyPods: both paths are measured, and a packet takes its
// programs some time.
func TestPrivilegedPacketsOfManyPods(t *testing.T) {
	requireRoot(t)
	r := cell(t, "scale", "pods-8-ingress/100G/podweir-strict")
	r.Cell.Workload.Pods = 3
	into := &record.Sample{}
	must.OK(t, New(root).Run(t.Context(), r, into))
	described(t, into)
	for _, path := range []string{"light", "heavy"} {
		alone := into.Metrics["alone_"+path+"_cost_ns"]
		least, most := into.Metrics["least_"+path+"_cost_ns"], into.Metrics["most_"+path+"_cost_ns"]
		if least <= 0 || least > alone || most < alone {
			t.Errorf("%s: from %.0f to %.0f ns, median %.0f", path, least, most, alone)
		}
		if spread := into.Metrics["spread_"+path+"_cost_ns"]; alone <= 0 || spread <= 0 {
			t.Errorf("%s: %.0f ns to one pod and %.0f to three in turns, want both", path, alone, spread)
		}
		// All of the way is more than what podweir does on it.
		if way := into.Metrics["alone_"+path+"_sender_cost_ns"]; way < alone {
			t.Errorf("%s: the whole way takes %.0f ns, its programs %.0f", path, way, alone)
		}
	}
}

// TestPrivilegedPacketsOfPodsWithoutLimit: the control has no programs.
func TestPrivilegedPacketsOfPodsWithoutLimit(t *testing.T) {
	requireRoot(t)
	into := &record.Sample{}
	must.OK(t, New(root).Run(t.Context(), cell(t, "scale", "pods-1-ingress/uncapped/unshaped"), into))
	described(t, into)
	for name := range into.Metrics {
		if !strings.Contains(name, "_sender_") && name != "statistics_cost_ns" {
			t.Errorf("pods without programs have %s", name)
		}
	}
	if into.Metrics["spread_light_sender_cost_ns"] <= 0 {
		t.Error("nothing of the way is told")
	}
}
