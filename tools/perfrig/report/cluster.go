// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/podweir/podweir/tools/perfrig/record"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

// clusterMemory has a row for each phase of podweir in a cluster, over all
// workloads: an agent does not know what its pods do.
func clusterMemory(r *record.Results) Table {
	t := Table{
		Title: "Memory of podweir's agent in the cluster",
		Note: "The most of each run, looked at every second, and the kubelet's of the same node beside it. MiB; anonymous is what is no file's. " +
			"The files of the runs' usage have every process, each second.",
		Header: []string{"phase", "n", "agent, anonymous", "most", "agent, resident", "most", "kubelet, anonymous", "kubelet, resident"},
	}
	columns := []struct {
		metric string
		most   bool
	}{
		{"agent_anonymous_rss_bytes", true},
		{"agent_rss_bytes", true},
		{"kubelet_anonymous_rss_bytes", false},
		{"kubelet_rss_bytes", false},
	}
	byPhase := map[string]map[string][]float64{}
	for i := range r.Samples {
		s := &r.Samples[i]
		if _, ok := s.Metrics[columns[0].metric]; !ok || !s.Good() {
			continue
		}
		of := byPhase[s.Cell.Phase.Name]
		if of == nil {
			of = map[string][]float64{}
			byPhase[s.Cell.Phase.Name] = of
		}
		for _, c := range columns {
			of[c.metric] = append(of[c.metric], s.Metrics[c.metric])
		}
	}
	for _, phase := range slices.Sorted(maps.Keys(byPhase)) {
		row := []string{phase, fmt.Sprint(len(byPhase[phase][columns[0].metric]))}
		for _, c := range columns {
			s := stats.Summarise(byPhase[phase][c.metric])
			row = append(row, (&column{scale: mebi, digits: 2}).format(s))
			if c.most {
				row = append(row, fmt.Sprintf("%.2f", s.Max*mebi))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

const mebi = 1.0 / (1 << 20)

// agentMost is the bar of the agent's anonymous memory, in bytes.
const agentMost = 15 << 20

// agent holds the most of all runs to the bar.
func (b *barred) agent() {
	most := 0.0
	for i := range b.r.Samples {
		if s := &b.r.Samples[i]; s.Good() {
			most = max(most, s.Metrics["agent_anonymous_rss_bytes"])
		}
	}
	if most > 0 {
		b.bars = append(b.bars, Bar{
			What: "the agent's anonymous memory, most of all runs", Measured: fmt.Sprintf("%.2f MiB", most*mebi),
			Want: fmt.Sprintf("at most %.0f MiB", agentMost*mebi), Pass: most <= agentMost,
		})
	}
}
