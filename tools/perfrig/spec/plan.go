// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package spec

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Run is one sample of one cell.
type Run struct {
	Cell Cell `json:"cell"`
	// Round is the number of the sample, from 0. Runs of one round and one
	// group stand beside one another in the plan, so their ratio is little
	// touched by what the machine does over an hour.
	Round int `json:"round"`
}

// ID names a run within its campaign.
func (r *Run) ID() string { return fmt.Sprintf("%s#%02d", r.Cell.ID(), r.Round) }

// group is what is compared directly: the phases of a workload at a rate. The
// unshaped phase belongs to the workload's first rate.
type group struct {
	workload string
	rate     uint64
}

// Plan orders all runs: rounds one after the other, in each round the groups in
// random order, in each group the phases in random order (a randomised complete
// block design). The order follows from the spec alone.
func (s *Spec) Plan() []Run {
	cells, samples := s.Cells()
	groups, order := grouped(cells)
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Digest()))
	rng := rand.New(rand.NewPCG(3, h.Sum64()))
	rounds := 0
	for _, n := range samples {
		rounds = max(rounds, n)
	}
	var out []Run
	for round := range rounds {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, g := range order {
			members := groups[g]
			rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			for _, c := range members {
				if round < samples[c.ID()] {
					out = append(out, Run{Cell: c, Round: round})
				}
			}
		}
	}
	return out
}

func grouped(cells []Cell) (groups map[group][]Cell, order []group) {
	groups = map[group][]Cell{}
	first := map[string]uint64{}
	for _, c := range cells {
		if _, ok := first[c.Workload.Name]; !ok && c.Rate != 0 {
			first[c.Workload.Name] = c.Rate
		}
	}
	for _, c := range cells {
		g := group{c.Workload.Name, c.Rate}
		if c.Rate == 0 {
			g.rate = first[c.Workload.Name]
		}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], c)
	}
	return groups, order
}

// Duration is how long runs take, by the estimates of their workloads.
func Duration(runs []Run) time.Duration {
	sum := 0.0
	for i := range runs {
		sum += runs[i].Cell.Workload.Seconds
	}
	return time.Duration(sum) * time.Second
}
