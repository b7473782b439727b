// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/report"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

const demoHead = `podweir demo: one pod at a time, made by ptp + host-local and one chained plugin, is loaded with
a bulk TCP flow in each direction (iperf3) and small HTTP requests beside them.
Calico and Cilium have no plugin here: a copy of what each sets on a pod limits it.
A second pod without a limit gets the same small requests at the same time: the bystander.
Kernel %s, %d CPUs, %s. Takes about four minutes; Ctrl-C cleans up.

`

const demoNotes = `
"out" is what the pod sends, "in" what it receives. Bulk is payload beside the small requests. The worst second is
counted by a separate BPF meter at the receiver, behind the limiter, headers included: after 3 s, and from the start.
Small requests: 150 new connections a second with responses of 4 kB. Kept connection: 200 requests of 64 bytes a second.
In brackets the bystander's p99. Closed loop: requests of 10 clients on new connections. Sent again: segments after 3 s.
Under the policy elephants small flows are not limited, so the worst second is above the limit.

`

// demo is a run in progress, and what it has measured.
type demo struct {
	out     io.Writer
	samples []*record.Sample
}

// demoCommand takes one sample of each cell of [spec.Demo], prints them as a table and
// leaves nothing on a machine that never had podweir.
func demoCommand(ctx context.Context, args []string, out io.Writer) {
	var c choices
	step.OK(c.flags("demo").Parse(args))
	s := spec.Demo()
	runs := c.matching(s)
	cells, _ := s.Cells()
	place := func(r *spec.Run) int {
		return slices.IndexFunc(cells, func(c spec.Cell) bool { return c.ID() == r.Cell.ID() })
	}
	slices.SortFunc(runs, func(a, b spec.Run) int { return cmp.Or(cmp.Compare(a.Cell.Rate, b.Cell.Rate), place(&a)-place(&b)) })
	here := netns.New(".")
	machine := step.Get(here.Machine(ctx))
	if !inUse(engine.DefaultPaths) {
		defer step.Close(forget)
	}
	d := &demo{out: out}
	fmt.Fprintf(out, demoHead, machine.Kernel, machine.CPUs, machine.CPU)
	for i := range runs {
		step.OK(d.measure(ctx, here, &runs[i]))
	}
	d.table()
	for _, rate := range s.Blocks[0].Rates {
		d.compare(rate)
	}
}

func (d *demo) measure(ctx context.Context, here *netns.Substrate, r *spec.Run) error {
	fmt.Fprintf(d.out, "%s, %s: ", spec.RateName(r.Cell.Rate), title(&r.Cell))
	c := campaign{measure: here.Run}
	sample, err := c.sample(ctx, r)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(d.out)
		return fmt.Errorf("interrupted; everything it made is removed: %w", err)
	case err != nil:
		return err
	case sample.Failed != "":
		return errors.New(sample.Failed)
	case sample.Unavailable != "":
		fmt.Fprintln(d.out, "not here:", sample.Unavailable)
		return nil
	}
	fmt.Fprintf(d.out, "small request p99 %s ms, kept connection p99 %s ms (other processes took %.2f cores)\n",
		number(sample, "open_p99_ms", 1), number(sample, "kept_p99_ms", 1), sample.Foreign)
	d.samples = append(d.samples, sample)
	return nil
}

// title is what a reader calls a limiter.
func title(c *spec.Cell) string {
	switch name := c.Phase.Name; name {
	case "unshaped":
		return "no plugin"
	case spec.BandwidthPlugin:
		return "bandwidth plugin"
	case spec.BandwidthPlugin + spec.Tuned:
		return "bandwidth plugin, tuned to 64 kB"
	case "calico":
		return "copy of Calico's limit"
	case "cilium":
		return "copy of Cilium's limit, into the pod only"
	default:
		return strings.ReplaceAll(name, "podweir-", "podweir ")
	}
}

// number is a metric of a sample in a unit of so much, "-" if there is none.
func number(s *record.Sample, metric string, unit float64) string {
	v, ok := s.Metrics[metric]
	if !ok {
		return "-"
	}
	return report.Digits(v / unit)
}

// share is a metric that is relative to the limit, with the digits in which a limit is told
// from its excess.
func share(s *record.Sample, metric string) string {
	if v, ok := s.Metrics[metric]; ok && v < 10 {
		return fmt.Sprintf("%.3f", v)
	}
	return number(s, metric, 1)
}

func (d *demo) table() {
	fmt.Fprintln(d.out)
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "limit\tenforced by\tbulk, Mbit/s\tworst second\tfrom start\tsmall request, ms\tkept conn. p99, ms\tclosed loop\tsent again")
	fmt.Fprintln(w, "\t\tout / in\t÷ limit, out / in\tout / in\tp50 / p99\t\tper second\tout / in")
	for _, s := range d.samples {
		both := func(metric string, unit float64) string {
			return number(s, "egress_"+metric, unit) + " / " + number(s, "ingress_"+metric, unit)
		}
		shares := func(metric string) string { return share(s, "egress_"+metric) + " / " + share(s, "ingress_"+metric) }
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s / %s (%s)\t%s (%s)\t%s\t%s\n", spec.RateName(s.Cell.Rate), title(&s.Cell),
			both("elephant_goodput_bits_per_second", 1e6), shares("worst_second_share"), shares("worst_second_from_start_share"),
			number(s, "open_p50_ms", 1), number(s, "open_p99_ms", 1), number(s, "open_bystander_p99_ms", 1),
			number(s, "kept_p99_ms", 1), number(s, "kept_bystander_p99_ms", 1),
			number(s, "closed_requests_per_second", 1), both("late_retransmits_count", 1))
	}
	_ = w.Flush()
	for _, s := range d.samples {
		// They count with the time until they were given up.
		for _, what := range slices.Sorted(maps.Keys(s.Errors)) {
			fmt.Fprintf(d.out, "%s, %s: %d requests without an answer (%s)\n", spec.RateName(s.Cell.Rate), title(&s.Cell), s.Errors[what], what)
		}
	}
	fmt.Fprint(d.out, demoNotes)
}

// compare says in words what the rows of a limit show.
func (d *demo) compare(rate uint64) {
	find := func(phase string) *record.Sample {
		i := slices.IndexFunc(d.samples, func(s *record.Sample) bool { return s.Cell.Rate == rate && s.Cell.Phase.Name == phase })
		if i < 0 {
			return nil
		}
		return d.samples[i]
	}
	reference, strict := find(spec.BandwidthPlugin), find("podweir-strict")
	if reference == nil || strict == nil {
		return
	}
	fmt.Fprintf(d.out, `At %s, while bulk fills the pod's limit in each direction:
  a small request took %s ms (p99) with the bandwidth plugin and %s ms with podweir (bystander: %s ms);
  a request on a kept connection took %s ms and %s ms (bystander: %s ms);
  the worst second into the pod held %s × the limit with the bandwidth plugin, to which containerd hands
  a burst of 512 MB, and %s × with podweir.
`, spec.RateName(rate),
		number(reference, "open_p99_ms", 1), number(strict, "open_p99_ms", 1), number(strict, "open_bystander_p99_ms", 1),
		number(reference, "kept_p99_ms", 1), number(strict, "kept_p99_ms", 1), number(strict, "kept_bystander_p99_ms", 1),
		share(reference, "ingress_worst_second_from_start_share"), share(strict, "ingress_worst_second_from_start_share"))
}

// inUse says that podweir keeps something on this machine already.
func inUse(p engine.Paths) bool {
	_, pins := os.Stat(p.Pins)
	_, run := os.Stat(p.Run)
	return pins == nil || run == nil
}

// forget removes what podweir keeps for the whole machine: programs, pins and probe results.
// It leaves the machine's CNI alone, which the demo has not touched.
func forget() error {
	root, err := os.MkdirTemp("", "podweir-demo")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	if out, err := exec.Command("bin/podweir", "uninstall", "--root", root).CombinedOutput(); err != nil {
		return fmt.Errorf("podweir uninstall: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
