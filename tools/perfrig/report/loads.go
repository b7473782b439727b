// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"slices"

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
			var alike []Bar
			for _, bar := range byPhase[phase] {
				if bar.Kind == k.Name {
					alike = append(alike, bar)
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
func tally(bars []Bar) string {
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
func outcome(bars []Bar) string {
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
