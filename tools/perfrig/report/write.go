// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// Terminal prints the tables and bars as text.
func Terminal(w io.Writer, r *record.Results) error {
	fmt.Fprint(w, emulated(&r.Campaign.Machine))
	if missing := incomplete(r); missing != "" {
		fmt.Fprintln(w, missing)
	}
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
