// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// loadPhases are the phases of the calls beside other loads, in the order of the page.
func loadPhases(r *record.Results) []string {
	var out []string
	for _, c := range cellsOf(r, spec.Ordinary) {
		if !slices.Contains(out, c.Phase.Name) {
			out = append(out, c.Phase.Name)
		}
	}
	return out
}

// LoadKinds has a row for each kind of bar of the loads, and for each phase how many
// of its cells hold it.
func LoadKinds(r *record.Results) Table {
	phases := loadPhases(r)
	t := Table{Header: append(append([]string{"what"}, phases...), "target")}
	byPhase := map[string][]Bar{}
	for _, c := range (&barred{r: r}).cells(spec.Ordinary) {
		byPhase[c.Phase.Name] = append(byPhase[c.Phase.Name], loadBars(r, &c)...)
	}
	for _, k := range append([]Kind{capKind}, loadKinds()...) {
		row, found := []string{k.Name}, false
		for _, phase := range phases {
			var alike []judged
			for _, bar := range byPhase[phase] {
				if bar.Kind == k.Name {
					alike = append(alike, judged{bar, r})
				}
			}
			row, found = append(row, tally(alike)), found || len(alike) > 0
		}
		if found {
			t.Rows = append(t.Rows, append(row, k.Asked))
		}
	}
	return t
}

// tally is the range of some bars, and the verdict.
func tally(bars []judged) string {
	if len(bars) == 0 {
		return "-"
	}
	low, high := bars[0].Value, bars[0].Value
	for i := range bars {
		low, high = min(low, bars[i].Value), max(high, bars[i].Value)
	}
	return fmt.Sprintf("%.4g to %.4g: %s", low, high, outcome(bars))
}

// outcome is the verdict. If each bar has one sample, none is decided, and it counts the
// samples beyond their target.
func outcome(bars []judged) string {
	beyond := 0
	for i := range bars {
		if !bars[i].Single {
			return verdict(bars)
		}
		if bars[i].Beyond {
			beyond++
		}
	}
	return fmt.Sprintf("%d of %d samples beyond", beyond, len(bars))
}

func loadBars(r *record.Results, c *spec.Cell) []Bar {
	b := &barred{r: r}
	if c.Workload.Mix != nil {
		b.load(c)
	}
	return b.bars
}

// Loads has a row for each load and cap, with what each phase made of it, and what
// podweir misses there.
func Loads(r *record.Results) Table {
	phases := loadPhases(r)
	t := Table{Header: append(append([]string{"load", "cap"}, phases...), "podweir's bars")}
	rows := map[string]int{}
	for _, c := range cellsOf(r, spec.Ordinary) {
		id := c.Workload.Name + "/" + spec.RateName(c.Rate)
		at, ok := rows[id]
		if !ok {
			at = len(t.Rows)
			rows[id] = at
			row := make([]string, len(t.Header))
			row[0], row[1] = strings.TrimPrefix(c.Workload.Name, "load-"), spec.RateName(c.Rate)
			t.Rows = append(t.Rows, row)
		}
		t.Rows[at][2+slices.Index(phases, c.Phase.Name)] = loadCell(r, &c)
		if c.Phase.Name == "podweir-strict" {
			t.Rows[at][len(t.Header)-1] = missed(loadBars(r, &c))
		}
	}
	return t
}

// loadCell is what a phase made of a load.
func loadCell(r *record.Results, c *spec.Cell) string {
	if why := unavailable(r, c); why != "" {
		return why
	}
	var parts []string
	for _, p := range []struct{ metric, format string }{
		{"call_lost_percent", "lost %.2f %%"},
		{"call_p90_ms", "p90 %.2f ms"},
		{"call_p99_ms", "p99 %.2f ms"},
		{"pages_p95_ms", "pages p95 %.0f ms"},
		{"segment_mean_ms", "segments %.0f ms"},
		{"late_retransmits_percent", "again %.2f %%"},
		{"bulk_fairness_share", "Jain %.2f"},
		{"bulk_round_trip_p50_ms", "round trip %.1f ms"},
		{c.Workload.Direction + "_used_share", "used %.3f"},
	} {
		if s := summary(r, c, p.metric); s.N > 0 {
			parts = append(parts, fmt.Sprintf(p.format, s.Mean))
		}
	}
	return strings.Join(parts, ", ")
}

// missed names the bars that are missed or not decided, and those whose only sample is
// beyond the target.
func missed(bars []Bar) string {
	var miss, open, beyond []string
	none := "ok"
	for i := range bars {
		b := judged{Bar: bars[i]}
		if b.Single {
			none = "none beyond"
		}
		switch {
		case b.Beyond:
			beyond = append(beyond, b.name())
		case b.Undecided && !b.Single:
			open = append(open, b.name())
		case !b.Pass:
			miss = append(miss, b.name())
		}
	}
	var parts []string
	for _, p := range []struct {
		word string
		of   []string
	}{{"**missed**", miss}, {"not decided", open}, {"beyond", beyond}} {
		if len(p.of) > 0 {
			parts = append(parts, p.word+": "+strings.Join(p.of, ", "))
		}
	}
	return cmp.Or(strings.Join(parts, "; "), none)
}
