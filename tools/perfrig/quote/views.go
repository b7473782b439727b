// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package quote

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/report"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// missing stands where the source has no such number.
const missing = "(not measured)"

// rivalsChart is where the chart of the newest campaign beside rivals is, from the root.
const rivalsChart = "docs/results/rivals.svg"

// views are the blocks, by name.
var views = map[string]func(p *page, sources []string) string{
	"bars":      bars,
	"campaigns": campaigns,
	"rivals":    rivals,
	"rivals-20": rivals20,
	"loads":     loads,
}

// bars holds campaigns of the rig, taken together, against what was promised.
func bars(p *page, sources []string) string {
	var b bytes.Buffer
	var all []*record.Results
	var of []string
	for _, source := range sources {
		r, name := p.results.campaign(source)
		if r == nil {
			fmt.Fprintf(&b, "- `%s`: no campaign of it is committed, and what only it measures is missing below.\n", source)
			continue
		}
		all = append(all, r)
		of = append(of, fmt.Sprintf("[`%s`](%s) of podweir %s", source, p.link(name), r.Campaign.Machine.Commit))
	}
	if len(of) > 0 {
		fmt.Fprintf(&b, "From %s.\n", strings.Join(of, ", "))
	}
	b.WriteByte('\n')
	t := report.Summary(all...)
	b.WriteString(t.Markdown())
	return b.String()
}

// rivals is what each limiter does with one flow into a pod, at every cap.
func rivals(p *page, sources []string) string {
	r, name := p.one(sources)
	if r == nil {
		return noRivals
	}
	m := &r.Campaign.Machine
	t := report.Rivals(r, report.RivalRates(r)...)
	return fmt.Sprintf("![p99 of a small request beside bulk into the pod, by limiter and cap, with the range of the samples](%s)\n\n"+
		"One TCP flow into a pod, [measured](%s) on %s, Linux %s, %d x %s, podweir %s.\n"+
		"A copy is the limiter that Cilium or Calico sets on a pod, made without their agents. The worst second is taken over the whole flow, with\n"+
		"its start. The connection beside the flow carries 200 small requests a second: the mean of the samples' p99, their range, and in brackets\n"+
		"that of a pod without a limit.\n\n%s",
		p.link(rivalsChart), p.link(name), r.Campaign.Started.Format("2006-01-02"), m.Kernel, m.CPUs, m.CPU, m.Commit, t.Markdown())
}

// rivals20 is the same at 20M only, for a page that says itself what a copy is.
func rivals20(p *page, sources []string) string {
	r, name := p.one(sources)
	if r == nil {
		return noRivals
	}
	m := &r.Campaign.Machine
	t := report.Rivals(r, 20_000_000)
	return fmt.Sprintf("%s\nOne bulk flow into a pod, [measured](%s) with podweir %s on %s, Linux %s, %d x %s. Brackets: the same requests of a pod without a limit.\n",
		t.Markdown(), p.link(name), m.Commit, r.Campaign.Started.Format("2006-01-02"), m.Kernel, m.CPUs, m.CPU)
}

const noRivals = "A campaign with intervals is not taken yet: `make perf-rivals` measures and publishes it.\n"

// one reads the campaign of a view of one; nil if none is committed.
func (p *page) one(sources []string) (r *record.Results, name string) {
	if len(sources) != 1 {
		step.OK(fmt.Errorf("this view is of one source, not %d", len(sources)))
	}
	return p.results.campaign(sources[0])
}

// loads is a call beside other loads: the bars for each phase. "perfrig report" has every row.
func loads(p *page, sources []string) string {
	r, name := p.one(sources)
	if r == nil {
		return fmt.Sprintf("No campaign of `%s` is committed.\n", strings.Join(sources, " "))
	}
	kinds := report.LoadKinds(r)
	return p.provenance(r, name) + "\n" + kinds.Markdown()
}

// campaigns lists what the rig measured below a directory, the newest first.
func campaigns(p *page, sources []string) string {
	var b bytes.Buffer
	for _, source := range sources {
		files := step.Get(filepath.Glob(filepath.Join(p.results.root, source, "*", "samples.jsonl")))
		for _, file := range slices.Backward(files) {
			b.WriteString(p.provenance(p.results.campaign(step.Get(filepath.Rel(p.results.root, file)))))
		}
	}
	return b.String()
}

// provenance is a line on a campaign.
func (p *page) provenance(r *record.Results, name string) string {
	return fmt.Sprintf("- [`%s`](%s), %s\n", r.Campaign.Profile, p.link(name), report.Provenance(r))
}

// number is a metric of a run, such as a/10M/x#00, or the mean of those of a
// cell, with its unit.
func (p *page) number(metric, name, source string) string {
	if _, ok := record.Unit(metric); !ok {
		step.OK(fmt.Errorf("the metric %q does not end with a unit", metric))
	}
	r, _ := p.results.campaign(source)
	if r == nil {
		return missing
	}
	cell, run, one := strings.Cut(name, "#")
	var samples []float64
	for round, v := range r.Values(cell, metric) {
		if !one || run == fmt.Sprintf("%02d", round) {
			samples = append(samples, v)
		}
	}
	if len(samples) == 0 {
		return missing
	}
	return report.Quantity(metric, stats.Summarise(samples).Mean)
}
