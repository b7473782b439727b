// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"slices"
	"sync"

	"github.com/podweir/podweir/e2e/matrix/cnis"
	"github.com/podweir/podweir/e2e/matrix/row"
)

// queue gives rows to clusters that run side by side. A cluster goes on with rows that can
// use it as it is.
type queue struct {
	mu   sync.Mutex
	rows []*row.Row
	// taken are the groups that a cluster has begun.
	taken map[string]bool
}

func newQueue(rows []*row.Row) *queue {
	return &queue{rows: slices.Clone(rows), taken: map[string]bool{}}
}

// group names the rows that can share a cluster: of a release of Kubernetes, with the same
// images, or with none but podweir's.
func group(r *row.Row) string {
	cni, err := cnis.New(r)
	if _, has := cni.(cnis.Images); err != nil || !has {
		return "Kubernetes " + r.Kubernetes
	}
	return "Kubernetes " + r.Kubernetes + " with " + r.CNI + " " + r.Version
}

// next takes a row for a cluster whose last row was of a group, or nil if none is left: one
// of that group, else the first of the largest group that no cluster has begun, else, so
// that no processor idles, of the largest of all.
func (q *queue) next(last string) *row.Row {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := map[string]int{}
	for _, r := range q.rows {
		left[group(r)]++
	}
	if left[last] == 0 {
		last = ""
		for _, r := range q.rows {
			g := group(r)
			better := last == "" || q.taken[last] && !q.taken[g] || q.taken[last] == q.taken[g] && left[g] > left[last]
			if better {
				last = g
			}
		}
		q.taken[last] = true
	}
	i := slices.IndexFunc(q.rows, func(r *row.Row) bool { return group(r) == last })
	if i < 0 {
		return nil
	}
	r := q.rows[i]
	q.rows = slices.Delete(q.rows, i, i+1)
	return r
}
