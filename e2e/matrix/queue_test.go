// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"slices"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestQueueGivesEachRowOnce has two clusters take rows in turn: a new cluster is begun for
// each group, and for one more at the end, so that both have something to do.
func TestQueueGivesEachRowOnce(t *testing.T) {
	chosen := must.Get(matrix(t).Select(false))(t)
	q := newQueue(chosen)
	var last [2]string
	var given []string
	groups, starts := map[string]bool{}, 0
	for i := 0; ; i++ {
		r := q.next(last[i%2])
		if r == nil {
			break
		}
		given = append(given, r.Name)
		groups[group(r)] = true
		if group(r) != last[i%2] {
			starts++
		}
		last[i%2] = group(r)
	}
	slices.Sort(given)
	if len(given) != len(chosen) || len(slices.Compact(given)) != len(chosen) {
		t.Errorf("rows %q are given, want each of %d once", given, len(chosen))
	}
	must.AtMost(t, "clusters that were started", len(groups)+1, starts)
}
