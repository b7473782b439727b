// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const root = "../../.."

var (
	_ = mark.EveryTest(mark.Nightly, "it is about the rig, not about podweir")
	_ = mark.EveryTest(mark.Timed, "it compares times of packets")
)

func TestMain(m *testing.M) {
	if lab.WorkerMain() {
		return
	}
	m.Run()
}

// TestEveryProfileCanBeDone: what a profile names exists here.
func TestEveryProfileCanBeDone(t *testing.T) {
	for _, s := range spec.Profiles() {
		cells, _ := s.Cells()
		for _, c := range cells {
			if workloads[c.Workload.Kind] == nil {
				t.Errorf("%s: no workload of kind %s", c.ID(), c.Workload.Kind)
			}
			if m := c.Workload.Mix; m != nil && m.Flood != "" && floods[m.Flood].Name == "" {
				t.Errorf("%s: no flood %q", c.ID(), m.Flood)
			}
			if d := c.Phase.Discipline; c.Phase.Kind == spec.Qdisc && doubles[d] == nil {
				t.Errorf("%s: no discipline %q", c.ID(), d)
			}
		}
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
}

// left are the namespaces and directories of this process's labs.
func left(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"/run/netns/pwlab*", "/run/podweir-lab/pwlab*"} {
		found, err := filepath.Glob(pattern)
		must.OK(t, err)
		for _, f := range found {
			if strings.Contains(f, fmt.Sprintf("pwlab%d-", os.Getpid())) {
				out = append(out, f)
			}
		}
	}
	return out
}

func cell(t *testing.T, profile, id string) *spec.Run {
	t.Helper()
	s, err := spec.Profile(profile)
	must.OK(t, err)
	cells, _ := s.Cells()
	for _, c := range cells {
		if c.ID() == id {
			return &spec.Run{Cell: c}
		}
	}
	t.Fatalf("profile %s has no cell %s", profile, id)
	return nil
}

// TestPrivilegedInterruptedRunLeavesNothing stops a run in the middle of its
// load.
func TestPrivilegedInterruptedRunLeavesNothing(t *testing.T) {
	requireRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(root).Run(ctx, cell(t, "rivals", "mixed/10M/podweir-strict"), &record.Sample{}) }()
	const podsAndClients = 5 // node, two clients, two pods
	for end := time.Now().Add(10 * time.Second); len(left(t)) < podsAndClients+1; {
		if time.Now().After(end) {
			t.Fatalf("after 10 s there are only %v", left(t))
		}
		<-time.After(10 * time.Millisecond)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("Run that was stopped = nil, want an error")
	}
	if got := left(t); len(got) > 0 {
		t.Errorf("left behind: %v", got)
	}
}

// TestPrivilegedShortWorkloads: those that can be short give their numbers.
func TestPrivilegedShortWorkloads(t *testing.T) {
	requireRoot(t)
	for id, want := range map[string][]string{
		"costs cost-cubic-4-egress/100M/podweir-strict": {
			"machine_cores_per_gbit", "packets_per_gbit_count", "timers_per_gbit_count", "sends_per_gbit_count",
		},
		"costs tcp-1-cubic-egress/uncapped/unshaped":  {"egress_goodput_bits_per_second"},
		"rivals tcp-1-bbr-ingress/20M/podweir-strict": {"ingress_used_share", "ingress_worst_second_share"},
		"scale memory-8/100M/podweir-strict":          {"memory_memlock_bytes", "add_rss_p50_bytes"},
	} {
		profile, id, _ := strings.Cut(id, " ")
		t.Run(strings.ReplaceAll(id, "/", " "), func(t *testing.T) {
			r := cell(t, profile, id)
			r.Cell.Workload.BulkSeconds = 2.5
			into := &record.Sample{}
			must.OK(t, New(root).Run(t.Context(), r, into))
			for _, name := range want {
				got, ok := into.Metrics[name]
				if !ok || got <= 0 {
					t.Errorf("%s = %v (%t), want more than 0", name, got, ok)
				}
			}
			described(t, into)
		})
	}
}

// TestRunSaysWhatIsNotHere: no sample is taken, and none fails.
func TestRunSaysWhatIsNotHere(t *testing.T) {
	r := cell(t, "loads", "load-pages-ingress/10M/podweir-strict-before")
	into := &record.Sample{}
	if err := New(t.TempDir()).Run(t.Context(), r, into); err != nil || !strings.Contains(into.Unavailable, "make before") || into.Metrics != nil {
		t.Errorf("Run = %v, %+v, want that the build is not there", err, into)
	}
}

// TestPrivilegedPodThatIsNotShapedIsNotMeasured: ADD succeeds where podweir
// fails open.
func TestPrivilegedPodThatIsNotShapedIsNotMeasured(t *testing.T) {
	requireRoot(t)
	r := cell(t, "costs", "latency-egress/100M/podweir-strict")
	r.Cell.Rate = 500 // the least limit is 1k
	into := &record.Sample{}
	err := New(root).Run(t.Context(), r, into)
	if err == nil || !strings.Contains(err.Error(), "the plugin said") {
		t.Errorf("Run with a limit that is too low = %v, want what the plugin said", err)
	}
	if len(into.Metrics) > 0 {
		t.Errorf("a pod that was not shaped has numbers: %v", into.Metrics)
	}
}
