// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Terminal prints every number of a campaign, a table for each workload and cap with the
// phases side by side, and then its bars. It returns how many of these are missed.
func Terminal(w io.Writer, r *record.Results) (missed int, err error) {
	defer step.End(&err)
	fmt.Fprintln(w, strings.TrimSuffix(Provenance(r), "."))
	if missing := r.Campaign.Planned - len(r.Done()); missing > 0 {
		fmt.Fprintf(w, "%d of %d samples are missing\n", missing, r.Campaign.Planned)
	}
	for cells := cellsOf(r, ""); len(cells) > 0; {
		first := &cells[0]
		n := slices.IndexFunc(cells, func(c spec.Cell) bool { return c.Workload.Name != first.Workload.Name || c.Rate != first.Rate })
		if n < 0 {
			n = len(cells)
		}
		step.OK(group(w, r, cells[:n]))
		cells = cells[n:]
	}
	fmt.Fprintln(w)
	for _, b := range Bars(r) {
		word := b.word()
		if word == miss {
			missed++
		}
		step.Get(fmt.Fprintf(w, "%-4s %s: %s (want %s)\n", word, b.What, b.Measured, b.Want))
	}
	return missed, nil
}

// group prints what the phases of one workload and cap measured: means, and behind ± the
// standard deviation of the samples in percent.
func group(w io.Writer, r *record.Results, cells []spec.Cell) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n%s, %s", cells[0].Workload.Name, spec.RateName(cells[0].Rate))
	names := map[string]bool{}
	for i := range cells {
		fmt.Fprintf(t, "\t%s%s", cells[i].Phase.Name, unavailable(r, &cells[i]))
		for _, name := range metricsOf(r, &cells[i]) {
			names[name] = true
		}
	}
	fmt.Fprintln(t)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprint(t, name)
		for i := range cells {
			fmt.Fprint(t, "\t", spread(name, summary(r, &cells[i], name)))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func spread(metric string, s stats.Summary) string {
	switch {
	case s.N == 0:
		return "-"
	case s.N == 1 || s.Mean == 0:
		return Quantity(metric, s.Mean)
	default:
		return fmt.Sprintf("%s ±%.1f%%", Quantity(metric, s.Mean), 100*s.Stddev/s.Mean)
	}
}

// unavailable says in brackets why a cell has no number; "" if it has one.
func unavailable(r *record.Results, c *spec.Cell) string {
	why := ""
	for i := range r.Samples {
		s := &r.Samples[i]
		switch {
		case s.Cell.ID() != c.ID():
		case s.Good():
			return ""
		default:
			why, _, _ = strings.Cut(" ("+s.Unavailable+s.Failed, "\n")
			why += ")"
		}
	}
	return why
}

// The words of bars.
const (
	held      = "ok"
	miss      = "MISS"
	undecided = "?"
)

func (b *Bar) word() string {
	switch {
	case b.Undecided:
		return undecided
	case b.Pass:
		return held
	}
	return miss
}

// Provenance says in a sentence where and how a campaign was taken.
func Provenance(r *record.Results) string {
	c, m := &r.Campaign, &r.Campaign.Machine
	var foreign, stolen float64
	samples, rounds := 0, 0
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Good() {
			foreign, stolen = max(foreign, s.Foreign), max(stolen, s.Stolen)
			samples, rounds = samples+1, max(rounds, s.Round+1)
		}
	}
	processors := fmt.Sprintf("the %d processors", m.CPUs)
	if m.Substrate == record.SubstrateVM {
		processors = "the machine's processors, which are emulated"
	}
	text := fmt.Sprintf("%s: Linux %s (%s), %d x %s, podweir %s. %d samples in %d rounds; other processes took up to %.2f of %s",
		c.Started.Format("2006-01-02"), m.Kernel, m.Substrate, m.CPUs, m.CPU, m.Commit, samples, rounds, foreign, processors)
	if stolen > 0 {
		text += fmt.Sprintf("; the host took up to %.2f", stolen)
	}
	return text + "."
}
