// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package result

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/podweir/podweir/e2e/figures"
)

// ranged are the columns of [Ranges]; NaN is no number.
var ranged = []struct {
	head string
	of   func(*Row) []float64
}{
	{"on the wire ÷ cap", func(r *Row) []float64 { return r.shares(r.Egress.WireBitRate, r.Ingress.WireBitRate) }},
	{"worst 10 s ÷ cap", func(r *Row) []float64 { return r.shares(r.Egress.WorstTenSeconds, r.Ingress.WorstTenSeconds) }},
	{"worst 1 s out ÷ cap", func(r *Row) []float64 { return r.shares(r.Egress.WireSpread[2]) }},
	{"in", func(r *Row) []float64 { return r.shares(r.Ingress.WireSpread[2]) }},
	{"light p99 ÷ bystander's", func(r *Row) []float64 { return []float64{r.Open.P99 / r.BystanderOpen.P99} }},
	{"kept p99 ÷ bystander's", func(r *Row) []float64 { return []float64{r.Kept.P99 / r.BystanderKept.P99} }},
	{"closed loop, rps", func(r *Row) []float64 { return []float64{r.Closed.PerSecond} }},
}

// shares are rates as shares of the cap; none without a cap.
func (r *Row) shares(rates ...float64) []float64 {
	if r.CapBitRate == 0 {
		return nil
	}
	out := make([]float64, 0, len(rates))
	for _, v := range rates {
		out = append(out, v/float64(r.CapBitRate))
	}
	return out
}

// Ranges prints, for each chained plugin at each cap, the lowest and the
// highest of all runs as a table of a page.
func Ranges(out io.Writer, runs []Report) {
	t := figures.Table{Header: []string{"cap", "chained plugin", "runs"}}
	for _, c := range ranged {
		t.Header = append(t.Header, c.head)
	}
	for _, rows := range alike(runs) {
		cells := []string{CapName(rows[0].CapBitRate), rows[0].Title, fmt.Sprint(len(rows))}
		for _, c := range ranged {
			var all []float64
			for i := range rows {
				all = append(all, c.of(&rows[i])...)
			}
			cells = append(cells, span(all))
		}
		t.Add(cells...)
	}
	fmt.Fprint(out, t.Markdown())
}

// alike are the rows of all runs by plugin and cap, ordered by the cap. What a
// machine did not carry is left out.
func alike(runs []Report) [][]Row {
	var out [][]Row
	for i := range runs {
		for _, row := range runs[i].Rows {
			if runs[i].notOffered(&row) != "" {
				continue
			}
			n := slices.IndexFunc(out, func(rows []Row) bool {
				return rows[0].Title == row.Title && rows[0].CapBitRate == row.CapBitRate
			})
			if n < 0 {
				n = len(out)
				out = append(out, nil)
			}
			out[n] = append(out[n], row)
		}
	}
	slices.SortStableFunc(out, func(a, b []Row) int { return cmp.Compare(a[0].CapBitRate, b[0].CapBitRate) })
	return out
}

func span(all []float64) string {
	all = slices.DeleteFunc(all, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v == 0 })
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s to %s", share(slices.Min(all)), share(slices.Max(all)))
}

// share has the digits in which a cap is told from its excess.
func share(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.3f", v)
	}
	return Digits(v)
}
