// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// TestDemoTable: a limiter has a row with what was measured, "-" for what was not, and is
// compared with podweir in words.
func TestDemoTable(t *testing.T) {
	var d demo
	var out strings.Builder
	d.out = &out
	cells, _ := spec.Demo().Cells()
	for i := range cells {
		s := &record.Sample{Cell: cells[i], Metrics: map[string]float64{
			"ingress_elephant_goodput_bits_per_second": 9.2e6, "ingress_worst_second_share": 1.0064, "ingress_worst_second_from_start_share": 156,
			"open_p50_ms": 1, "open_p99_ms": 12.34, "open_bystander_p99_ms": 2,
		}}
		if s.Cell.Phase.Name == spec.BandwidthPlugin {
			s.Errors = map[string]int{"open: timeout": 7}
		}
		d.samples = append(d.samples, s)
	}
	d.table()
	d.compare(10_000_000)
	d.compare(20_000_000)
	for _, want := range []string{
		"- / 9.20 ", "- / 1.006 ", "- / 156 ", "1.00 / 12.3 (2.00)", "10M, bandwidth plugin: 7 requests without an answer (open: timeout)",
		"100M ", "copy of Cilium's limit", "At 10M, ", "12.3 ms (p99) with the bandwidth plugin", "156 × the limit",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "At 20M") {
		t.Error("a limit that was not measured is compared")
	}
}

// The demo runs on a machine that never had podweir: with a /run, a /tmp and a bpffs of its own.
func TestPrivilegedDemoLeavesNothing(t *testing.T) {
	mark.NightlyKernels(t, "it measures rates, which an emulated processor does not have")
	testutil.RequireRoot(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "perfrig")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const script = `mount --make-rprivate / && mount -t tmpfs none /run && mkdir /run/netns && mount -t bpf bpf /sys/fs/bpf &&
		mkdir "$1/tmp" && export TMPDIR="$1/tmp" && cd ../.. && "$1/perfrig" demo -only mixed/10M/podweir-strict &&
		find /run "$1/tmp" -mindepth 1 ! -path /run/netns ! -path /run/mount | sed 's/^/left: /' && { ls /sys/fs/bpf | grep -v '\.debug$' | sed 's/^/left: /' || true; }`
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-c", script, "bash", dir).CombinedOutput()
	if said := string(out); err != nil || strings.Contains(said, "left: ") || !strings.Contains(said, "10M    podweir strict") {
		t.Errorf("the demo left (%v):\n%s\nwant a row and nothing left", err, said)
	}
}
