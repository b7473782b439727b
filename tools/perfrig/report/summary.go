// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/podweir/podweir/tools/perfrig/record"
)

// notMeasured stands where no campaign has a number.
const notMeasured = "not measured"

// Summary holds campaigns, taken together, against what was promised: a row for each of
// [Kinds], also where no campaign has it. It has the range of all cells, and each that
// misses its target.
func Summary(campaigns ...*record.Results) Table {
	byKind := map[string][]Bar{}
	for _, r := range campaigns {
		for _, b := range Bars(r) {
			byKind[b.Kind] = append(byKind[b.Kind], b)
		}
	}
	t := Table{Header: []string{"what", "cells", "podweir", "target", ""}}
	for _, k := range Kinds() {
		t.Rows = append(t.Rows, k.row(byKind[k.Name]))
	}
	return t
}

// row sums a kind up.
func (k *Kind) row(bars []Bar) []string {
	if len(bars) == 0 {
		return []string{k.Name, "", notMeasured, k.Asked, "-"}
	}
	found := []string{span(bars)}
	for i := range bars {
		if b := &bars[i]; !b.Pass && !b.Undecided {
			found = append(found, fmt.Sprintf("**%s** of %s", b.Measured, b.Cell.ID()))
		}
	}
	return []string{k.Name, strconv.Itoa(len(bars)), strings.Join(found, "; "), k.Asked, verdict(bars)}
}

// span is the lowest and the highest number.
func span(bars []Bar) string {
	byValue := func(a, b Bar) int { return cmp.Compare(a.Value, b.Value) }
	low, high := slices.MinFunc(bars, byValue).Measured, slices.MaxFunc(bars, byValue).Measured
	if low == high {
		return low
	}
	number, unit, _ := strings.Cut(low, " ")
	if _, same, _ := strings.Cut(high, " "); same == unit {
		low = number
	}
	return low + " to " + high
}

// Quantity writes a number of a metric with its unit.
func Quantity(metric string, v float64) string {
	switch unit, _ := record.Unit(metric); {
	case strings.HasSuffix(metric, "_share"):
		return fmt.Sprintf("%.4f of the cap", v)
	case unit == "ms":
		return fmt.Sprintf("%.2f ms", v)
	case unit == "ns" && v >= 100:
		return fmt.Sprintf("%.0f ns", v)
	case unit == "bit/s":
		return fmt.Sprintf("%.1f Mbit/s", v/1e6)
	case unit == "B":
		return fmt.Sprintf("%.1f KiB", v/1024)
	case strings.HasSuffix(metric, "_count"):
		return fmt.Sprintf("%.0f", v)
	case unit == "":
		return fmt.Sprintf("%.3f", v)
	default:
		return fmt.Sprintf("%.3g %s", v, unit)
	}
}

func verdict(bars []Bar) string {
	missed, open := 0, 0
	for i := range bars {
		switch {
		case bars[i].Undecided:
			open++
		case !bars[i].Pass:
			missed++
		}
	}
	switch {
	case missed == 0 && open == len(bars):
		return "not decided"
	case missed == 0 && open > 0:
		return fmt.Sprintf("not decided in %d of %d", open, len(bars))
	case missed == 0:
		return "ok"
	case len(bars) == 1:
		return "**missed**"
	default:
		return fmt.Sprintf("**missed** by %d of %d", missed, len(bars))
	}
}
