// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/report"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const demoHead = `podweir demo: one pod at a time, made by ptp + host-local and one chained plugin, receives a bulk TCP flow (iperf3)
under a limit: of cubic, of BBR, and then one with 200 small requests a second beside it on an open connection.
Calico and Cilium have no plugin here: a copy of what each sets on a pod limits it.
Kernel %s, %d CPUs, %s. Takes about four minutes; Ctrl-C cleans up.

`

const demoNotes = `
The worst second is the most that a separate BPF meter counted at the receiver, behind the limiter, headers included.
Sent again: TCP segments. Small request: 64 bytes; in brackets that of a pod without a limit, measured in turns.
`

// demoCommand takes one sample of each cell of [spec.Demo], prints them as a table and
// leaves nothing on a machine that never had podweir.
func demoCommand(ctx context.Context, args []string, out io.Writer) {
	var c choices
	step.OK(c.flags("demo").Parse(args))
	runs := c.matching(spec.Demo())
	here := netns.New(".")
	machine := step.Get(here.Machine(ctx))
	if !inUse(engine.DefaultPaths) {
		defer step.Close(forget)
	}
	dir := step.Get(os.MkdirTemp("", "podweir-demo"))
	defer step.Close(func() error { return os.RemoveAll(dir) })
	file := step.Get(record.Open(filepath.Join(dir, "samples.jsonl"), record.Campaign{Profile: "demo", Machine: *machine}, runs))
	defer step.Close(file.Close)
	fmt.Fprintf(out, demoHead, machine.Kernel, machine.CPUs, machine.CPU)
	campaign := campaign{plan: runs, file: file, out: out, measure: here.Run}
	failed := campaign.run(ctx)
	if ctx.Err() == nil {
		t := report.Rivals(file.Results, report.RivalRates(file.Results)...)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w)
		for _, row := range append([][]string{t.Header}, t.Rows...) {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		step.OK(w.Flush())
		fmt.Fprint(out, demoNotes)
	}
	step.OK(failed)
}

// inUse says that podweir keeps something on this machine already.
func inUse(p engine.Paths) bool {
	_, pins := os.Stat(p.Pins)
	_, run := os.Stat(p.Run)
	return pins == nil || run == nil
}

// forget removes what podweir keeps for the whole machine: programs, pins and probe results.
// It leaves the machine's CNI alone, which the demo has not touched.
func forget() (err error) {
	defer step.End(&err)
	root := step.Get(os.MkdirTemp("", "podweir-demo"))
	defer func() { _ = os.RemoveAll(root) }()
	if out, err := exec.Command("bin/podweir", "uninstall", "--root", root).CombinedOutput(); err != nil {
		return fmt.Errorf("podweir uninstall: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
