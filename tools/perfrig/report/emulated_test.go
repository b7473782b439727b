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

// TestEmulationIsSaid: the page and the terminal say it before the first
// number, and the page above every table; others do not say it.
func TestEmulationIsSaid(t *testing.T) {
	r := results()
	const word, note = "QEMU without KVM", "*Emulated: compare ratios only.*"
	if page := string(markdown(r, nil)); strings.Contains(page, word) || strings.Contains(page, note) || !strings.Contains(page, "0.50 of 2 |") {
		t.Errorf("the page of a real machine speaks of emulation, or not of its processors:\n%s", page)
	}
	r.Campaign.Machine.Substrate = record.SubstrateVM
	page := string(markdown(r, nil))
	if got, want := strings.Count(page, note), len(Tables(r)); got != want {
		t.Errorf("%d tables say that they are emulated, want %d", got, want)
	}
	if i, j := strings.Index(page, word), strings.Index(page, "| --- |"); i < 0 || i > j {
		t.Errorf("emulation is said at %d, the first table is at %d", i, j)
	}
	for _, want := range []string{"# Measured on 0001-01-01, Linux 6.18.1, vm\n", "0.50 |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	var out bytes.Buffer
	if err := Terminal(&out, r); err != nil || !strings.HasPrefix(out.String(), "Pods and clients are in an emulated machine") {
		t.Errorf("Terminal = %v and does not begin with the emulation:\n%s", err, out.String())
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
