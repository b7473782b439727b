// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package compare

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/podweir/podweir/tools/perfrig/stats"
)

// Write prints the rows that changed and how many did not.
func Write(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	counts := map[Verdict]int{}
	for i := range rows {
		r := &rows[i]
		counts[r.Verdict]++
		if r.Verdict != Worse && r.Verdict != Better {
			continue
		}
		before, after := stats.Summarise(r.Before), stats.Summarise(r.After)
		fmt.Fprintf(t, "%s\t%s\t%s\t%.4g ± %.2g\t→ %.4g ± %.2g\tx %.3f (%.3f to %.3f)\n", r.Verdict, r.Cell, r.Metric,
			before.Mean, before.Stddev, after.Mean, after.Stddev,
			r.Difference.Ratio, r.Difference.Low, r.Difference.High)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d ratios: %d worse, %d better, %d the same within noise or %.0f %%, %d with too few or no values to judge\n",
		len(rows), counts[Worse], counts[Better], counts[Same], 100*least, counts[NotJudged])
	return err
}
