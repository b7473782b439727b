// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"slices"
	"testing"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

func TestCellsAreInTheOrderOfPods(t *testing.T) {
	r := &record.Results{}
	for _, pods := range []int{250, 8, 1, 110} {
		r.Samples = append(r.Samples, sample(ours, spec.Workload{Name: fmt.Sprintf("memory-%d", pods), Kind: spec.Memory, Pods: pods}, 0, nil))
	}
	var got []int
	for _, c := range cellsOf(r, spec.Memory) {
		got = append(got, c.Workload.Pods)
	}
	if !slices.IsSorted(got) {
		t.Errorf("pods %v, want them ascending", got)
	}
}
