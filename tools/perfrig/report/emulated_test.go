// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// TestEmulationIsSaid before the first number, and not of others.
func TestEmulationIsSaid(t *testing.T) {
	r := results()
	for substrate, said := range map[string]bool{"netns": false, record.SubstrateVM: true} {
		r.Campaign.Machine.Substrate = substrate
		var out bytes.Buffer
		if err := Terminal(&out, r); err != nil || strings.HasPrefix(out.String(), "Pods and clients are in an emulated machine") != said {
			t.Errorf("%s: Terminal = %v, want it to begin with the emulation: %t\n%s", substrate, err, said, out.String())
		}
	}
}

// TestTooFewRequestsHaveNoBar: without a 99th percentile there is nothing to
// hold against it.
func TestTooFewRequestsHaveNoBar(t *testing.T) {
	r := results()
	for i := range r.Samples {
		delete(r.Samples[i].Metrics, "open_p99_ms")
	}
	for what := range words(Bars(r)) {
		if strings.Contains(what, "light p99") {
			t.Errorf("there is a bar %q", what)
		}
	}
}

func TestKernelAndProcessors(t *testing.T) {
	m := &record.Machine{Substrate: "netns", Kernel: "6.18", CPUs: 2}
	if got, want := Kernel(m)+"; "+Processors(m), "Linux 6.18 (netns); the 2 processors"; got != want {
		t.Errorf("a real machine is %q, want %q", got, want)
	}
	m = &record.Machine{Substrate: record.SubstrateVM, Kernel: "6.12", CPUs: 1}
	if got, want := Kernel(m)+"; "+Processors(m), "Linux 6.12 (vm); the host's processors"; got != want {
		t.Errorf("an emulated machine is %q, want %q", got, want)
	}
}

// TestWhatIsLackingHasNoBar: a kernel without a qdisc misses none.
func TestWhatIsLackingHasNoBar(t *testing.T) {
	r := results()
	for _, w := range []spec.Workload{sweep, mix, latency} {
		lacking := sample(ours, w, 0, nil)
		lacking.Cell.Phase.Name, lacking.Unavailable = "podweir-strict-htb", "kernel lacks sch_htb"
		r.Samples = append(r.Samples, lacking)
	}
	for what := range words(Bars(r)) {
		if strings.Contains(what, "podweir-strict-htb") {
			t.Errorf("there is a bar %q", what)
		}
	}
}
