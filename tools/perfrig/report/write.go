// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// Terminal prints the tables and bars as text.
func Terminal(w io.Writer, r *record.Results) error {
	m := &r.Campaign.Machine
	fmt.Fprint(w, emulated(m))
	for _, t := range Tables(r) {
		fmt.Fprintf(w, "\n%s\n", t.Title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{t.Header}, t.Rows...) {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, b := range Bars(r) {
		if _, err := fmt.Fprintf(w, "%-4s %s: %s (want %s)\n", b.word(), b.What, b.Measured, b.Want); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bar) word() string {
	switch {
	case b.Undecided:
		return "?"
	case b.Pass:
		return "ok"
	}
	return "MISS"
}

// Write writes the page, every number, the charts and a copy of the samples
// into a directory, which it makes.
func Write(dir, samples string) error {
	r, err := record.Read(samples)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	charts, err := drawAll(dir, r)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(samples)
	if err != nil {
		return err
	}
	numbers, err := numbersCSV(r)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "samples.jsonl"), raw, 0o644),
		os.WriteFile(filepath.Join(dir, "numbers.csv"), numbers, 0o644),
		os.WriteFile(filepath.Join(dir, "README.md"), markdown(r, charts), 0o644),
	)
}

// markdown is the page.
func markdown(r *record.Results, charts []Chart) []byte {
	var b bytes.Buffer
	c, m := &r.Campaign, &r.Campaign.Machine
	fmt.Fprintf(&b, "# Measured on %s, %s\n\n", c.Started.Format("2006-01-02"), where(m))
	b.WriteString(emulated(m))
	b.WriteString("Written by `perfrig report` from [samples.jsonl](samples.jsonl); docs/contributing/perfrig.md says how it was measured. " +
		"Numbers are mean ± standard deviation of the samples; [numbers.csv](numbers.csv) has all of them with their 95 % confidence intervals.\n\n")
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n| kernel | %s |\n| processor | %d x %s |\n| clang of the BPF object | %s |\n| commit | %s |\n| podweir-cni, SHA-256 | %s… |\n",
		m.Kernel, m.CPUs, m.CPU, m.Clang, m.Commit, m.Plugin)
	fmt.Fprintf(&b, "| priority of the load generators | nice %d |\n| profile, spec, seed | %s, %s, %d |\n", m.Niceness, c.Profile, c.Digest, c.Seed)
	if quiet := noise(r); len(quiet.Rows) > 0 {
		for _, taken := range quiet.Rows[:2] {
			fmt.Fprintf(&b, "| %s | mean %s, at most %s%s |\n", taken[0], taken[2], taken[4], ofHost(m))
		}
	}
	if missing := incomplete(r); missing != "" {
		fmt.Fprintf(&b, "| not complete | %s |\n", missing)
	}
	bars := Table{Header: []string{"what", "measured", "bar", ""}}
	for _, x := range Bars(r) {
		bars.Add(x.What, x.Measured, x.Want, x.word())
	}
	b.WriteString("\n## Bars\n\nWhat podweir has promised to reach; a miss stays in the table.\n\n" + bars.Markdown())
	for _, t := range Tables(r) {
		fmt.Fprintf(&b, "\n## %s\n\n%s%s\n\n%s", t.Title, emulatedNote(m), t.Note, t.Markdown())
	}
	for i, chart := range charts {
		if i == 0 {
			b.WriteString("\n## Charts\n")
		}
		fmt.Fprintf(&b, "\n![%s](%s)\n", chart.Title, chart.File)
	}
	return b.Bytes()
}

// incomplete says how many of the spec's samples are not there.
func incomplete(r *record.Results) string {
	done, planned := r.Done(), planned(r)
	if planned == 0 {
		return incompleteAtLeast(r, done)
	}
	if missing := planned - len(done); missing > 0 {
		return fmt.Sprintf("%d of %d samples are missing", missing, planned)
	}
	return ""
}

// planned is how many samples the campaign's spec takes, 0 if neither the file
// tells nor the spec is known any more.
func planned(r *record.Results) int {
	if r.Campaign.Planned > 0 {
		return r.Campaign.Planned
	}
	s, err := spec.Profile(r.Campaign.Profile)
	if err != nil || s.Digest() != r.Campaign.Digest {
		return 0
	}
	return len(s.Plan(r.Campaign.Seed))
}

// incompleteAtLeast goes by the samples alone, where the spec is not known any
// more: each cell wants as many rounds as the one that has most.
func incompleteAtLeast(r *record.Results, done map[string]bool) string {
	rounds := 0
	cells := map[string]spec.Cell{}
	for i := range r.Samples {
		s := &r.Samples[i]
		rounds = max(rounds, s.Round+1)
		cells[s.Cell.ID()] = s.Cell
	}
	missing := 0
	for _, c := range cells {
		for round := range rounds {
			if run := (spec.Run{Cell: c, Round: round}); !done[run.ID()] {
				missing++
			}
		}
	}
	if missing == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d samples are missing, if all cells were to have as many; the profile has another spec by now", missing, rounds*len(cells))
}

// numbersCSV has a line for each metric of each cell.
func numbersCSV(r *record.Results) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	lines := [][]string{{
		"workload", "cap_bits_per_second", "phase", "metric", "unit", "n", "mean", "stddev",
		"confidence95_low", "confidence95_high", "min", "median", "max",
	}}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for _, kind := range kinds(r) {
		for _, c := range cellsOf(r, kind) {
			for _, name := range metricsOf(r, &c) {
				m, _ := record.Describe(name)
				s := summary(r, &c, name)
				lines = append(lines, []string{
					c.Workload.Name, strconv.FormatUint(c.Rate, 10), c.Phase.Name, name, m.Unit, strconv.Itoa(s.N),
					number(s.Mean), number(s.Stddev), number(s.ConfidenceLow), number(s.ConfidenceHigh),
					number(s.Min), number(s.Median), number(s.Max),
				})
			}
		}
	}
	err := w.WriteAll(lines)
	return b.Bytes(), err
}

// kinds are the kinds of workload in a campaign, in the order of their names.
func kinds(r *record.Results) []spec.WorkloadKind {
	seen := map[spec.WorkloadKind]bool{}
	for i := range r.Samples {
		seen[r.Samples[i].Cell.Workload.Kind] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
