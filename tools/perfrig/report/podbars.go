// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
	"fmt"
	"math"

	"github.com/podweir/podweir/tools/perfrig/spec"
)

const (
	// packetDrift is what a packet to one pod may cost on a full node by what it costs on
	// one with that pod alone.
	packetDrift = 1.1
	// turnsMost is what packets to all pods in turns may cost by those to one. The first access to a pod's
	// data is a miss of the caches: memory's price, whatever the programs do.
	turnsMost = 3.2
	// agentMost is the bar of the agent's anonymous memory, in bytes.
	agentMost = 15 << 20
)

// podBars are what must not grow with the number of pods.
func (b *barred) podBars() {
	for _, c := range cellsOf(b.r, spec.Pods) {
		if c.Phase.Kind == spec.Podweir {
			b.podPackets(&c)
		}
	}
	for _, c := range cellsOf(b.r, spec.Memory) {
		if most := b.mean(&c, "agent_rss_max_bytes"); !math.IsNaN(most) {
			b.add(most <= agentMost, &c, "the agent's anonymous memory", fmt.Sprintf("%.2f MiB", most/(1<<20)),
				fmt.Sprintf("at most %.0f MiB", float64(agentMost)/(1<<20))).of(agentKind, most)
		}
	}
}

// podPackets: the programs do no more for a packet because others have programs,
// too; and what it costs beyond that where each packet finds another pod's
// instructions and data.
func (b *barred) podPackets(c *spec.Cell) {
	for _, path := range []string{"light", "heavy"} {
		metric := "alone_" + path + "_cost_ns"
		if by := b.withOnePod(c, metric); !math.IsNaN(by) {
			drift := b.mean(c, metric) / by
			b.add(drift <= packetDrift, c, path+" packets to one pod, relative to a node with that pod alone",
				fmt.Sprintf("%.2f", drift), fmt.Sprintf("at most %.1f", packetDrift)).of(driftKind, drift)
		}
		metric = "spread_" + path + "_cost_ratio"
		if ratio := b.mean(c, metric); !math.IsNaN(ratio) {
			b.add(ratio <= turnsMost, c, path+" packets to all pods in turns, relative to one pod",
				fmt.Sprintf("%.2f", ratio), fmt.Sprintf("at most %.1f", turnsMost)).of(turnsKind, ratio)
		}
	}
}

// withOnePod is the mean of a metric where the same phase has one pod; NaN if
// that was not measured, or the cell is that.
func (b *barred) withOnePod(c *spec.Cell, metric string) float64 {
	for _, o := range cellsOf(b.r, c.Workload.Kind) {
		if o.Workload.Pods == 1 && c.Workload.Pods != 1 && o.Phase.Name == c.Phase.Name && o.Rate == c.Rate {
			return b.mean(&o, metric)
		}
	}
	return math.NaN()
}
