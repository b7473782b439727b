// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import (
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

// agent is what the agent takes beside so many pods.
func (b *barred) agent(c *spec.Cell) {
	b.ifMeasured(c, agentKind, "the agent's anonymous memory", "%.2f MiB", b.mean(c, "agent_rss_max_bytes")/(1<<20), agentMost>>20)
}

// podPackets: the programs do no more for a packet because others have programs,
// too; and what it costs beyond that where each packet finds another pod's
// instructions and data.
func (b *barred) podPackets(c *spec.Cell) {
	if c.Phase.Kind != spec.Podweir {
		return
	}
	for _, path := range []string{"light", "heavy"} {
		metric := "alone_" + path + "_cost_ns"
		b.ifMeasured(c, driftKind, path+" packets to one pod, relative to a node with that pod alone", "%.2f",
			b.mean(c, metric)/b.withOnePod(c, metric), packetDrift)
		b.ifMeasured(c, turnsKind, path+" packets to all pods in turns, relative to one pod", "%.2f",
			b.mean(c, "spread_"+path+"_cost_ratio"), turnsMost)
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
