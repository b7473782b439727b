// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package report

import "fmt"

// Kind is what bars of many cells have in common.
type Kind struct {
	// Name says what is measured, Asked what must be reached.
	Name, Asked string
}

// The kinds, in the order in which they are told.
var (
	capKind         = Kind{Name: "worst second on the wire", Asked: "promise 2's formula: 1.01 of the cap from 10M up"}
	useKind         = Kind{Name: "use of the cap by one TCP flow", Asked: fmt.Sprintf("at least %.2f", leastUse)}
	lostKind        = Kind{Name: "segments retransmitted after 3 s", Asked: fmt.Sprintf("at most %.0f in 10 s more than the tuned plugin, or %.1f %%", lostPer10s, lostPercent)}
	keptKind        = Kind{Name: "kept connection beside bulk, p99", Asked: fmt.Sprintf("at most %.0f × the bystander's + %.1f ms", keptOver, keptSlack)}
	keptShippedKind = Kind{Name: "the same, relative to the shipped plugin", Asked: fmt.Sprintf("at most %.2f", keptShipped)}
	lightKind       = Kind{Name: "fresh connections beside bulk, p99", Asked: fmt.Sprintf("at most %.0f × (serialisation at the cap + the bystander's)", lightOver)}
	lightTunedKind  = Kind{Name: "the same, relative to the tuned plugin", Asked: fmt.Sprintf("at most %.1f", lightTuned)}
	answersKind     = Kind{Name: "requests/s in a closed loop under `elephants`, relative to an unshaped pod", Asked: fmt.Sprintf("at least %.2f", leastAnswers)}
	addKind         = Kind{Name: "ADD, median", Asked: fmt.Sprintf("at most %.0f ms", addMost)}
	addOverKind     = Kind{Name: "ADD, median relative to the reference plugin", Asked: fmt.Sprintf("at most %.1f", addOver)}
	crowdKind       = Kind{Name: "ADD of many at once, until all are done, relative to the reference plugin", Asked: fmt.Sprintf("at most %.1f", crowdOver)}
	addDriftKind    = Kind{Name: "ADD, median of the last 20 pods relative to the first 20", Asked: fmt.Sprintf("at most %.1f", addDrift)}
	rssKind         = Kind{Name: "peak memory of ADD, relative to the reference plugin", Asked: fmt.Sprintf("at most %.1f", rssOver)}
	memoryKind      = Kind{Name: "kernel memory per pod, both directions", Asked: fmt.Sprintf("at most %d KiB, with an ifb %d", memoryMost>>10, (memoryMost+memoryIFB)>>10)}
	packetKind      = Kind{Name: "cost per light packet", Asked: fmt.Sprintf("at most %.0f ns, %.0f on EPYC", packetMost, packetEPYC)}
	packetOverKind  = Kind{Name: "cost per heavy or metered packet, relative to a light one", Asked: fmt.Sprintf("at most %.1f", packetOver)}
	processorKind   = Kind{Name: "processor time per Gbit of a limited pod, relative to the tuned plugin", Asked: fmt.Sprintf("at most %.1f out of 100M, %.1f elsewhere", processorOut, processorMost)}
	agentKind       = Kind{Name: "the agent's anonymous memory", Asked: fmt.Sprintf("at most %d MiB", agentMost>>20)}
	driftKind       = Kind{Name: "packets to one pod, relative to a node with that pod alone", Asked: fmt.Sprintf("at most %.1f", packetDrift)}
	turnsKind       = Kind{Name: "packets to all pods in turns, relative to one pod", Asked: fmt.Sprintf("at most %.1f", turnsMost)}
)

// Kinds are those that a campaign of `ci` and one of `costs` have bars of
// together.
func Kinds() []Kind {
	return []Kind{
		capKind, useKind, lostKind, keptKind, keptShippedKind, lightKind, lightTunedKind, answersKind,
		addKind, addOverKind, crowdKind, addDriftKind, rssKind, memoryKind, packetKind, packetOverKind, processorKind, agentKind, driftKind, turnsKind,
	}
}

// The kinds of a call beside other loads.
var (
	callLostKind    = Kind{Name: "call below its fair share, lost, %", Asked: fmt.Sprintf("at most %.1f", callLostMost)}
	callTimeKind    = Kind{Name: "call below its fair share, p99 beyond the bystander's, ms", Asked: fmt.Sprintf("at most %.0f × one packet of each active flow at the cap", callTurns)}
	flatLostKind    = Kind{Name: "call lost beyond what a plain queue loses, points", Asked: fmt.Sprintf("0, resolved to %.1f", lossResolved)}
	flatTimeKind    = Kind{Name: "call p90 beyond a plain queue's, ms", Asked: "0, resolved to one frame at the cap"}
	flatDoneKind    = Kind{Name: "pages (p95) and video segments (mean) beyond a plain queue's, ms", Asked: "0, resolved to one frame at the cap"}
	jainKind        = Kind{Name: "fairness of bulk flows in a second (Jain)", Asked: fmt.Sprintf("at least %.2f; %.2f of 64 flows at 10M, %.2f of cubic beside BBR into a pod", fairLeast, fairMany, fairKinds)}
	againKind       = Kind{Name: "segments of bulk sent again, %", Asked: fmt.Sprintf("at most %.0f; of several flows into a pod %.0f at 100M and %.0f below, of BBR at 10M %.0f", againMost, againIn, againSlow, againBBR)}
	ecnAgainKind    = Kind{Name: "segments of ECN flows sent again", Asked: "0"}
	markedKind      = Kind{Name: "packets of ECN flows marked, least of the rounds", Asked: "more than 0 where one is lost"}
	loadUseKind     = Kind{Name: "use of the cap by 1 or 8 flows", Asked: fmt.Sprintf("at least %.2f", leastUse)}
	besideKind      = Kind{Name: "part of the cap of the least flow beside a UDP flow that does not slow down", Asked: fmt.Sprintf("at least %.1f of two, %.2f of an equal part of more", besideTwo, besideMore)}
	besideFloodKind = Kind{Name: "part of that UDP flow", Asked: fmt.Sprintf("at most %.1f of two, %.2f of an equal part of more", 1-besideTwo, besideMost)}
	ownWaitKind     = Kind{Name: "bulk's own packets from 100M up, median of round trips, ms", Asked: fmt.Sprintf("at most %.0f out of a pod, %.0f into one", ownWaitOut, ownWaitIn)}
)

// loadKinds have rows only where a campaign has loads.
func loadKinds() []Kind {
	return []Kind{
		callLostKind, callTimeKind, flatLostKind, flatTimeKind, flatDoneKind,
		jainKind, againKind, ecnAgainKind, markedKind, loadUseKind, ownWaitKind, besideKind, besideFloodKind,
	}
}

// of says of which kind a bar is, and by which number it is judged.
func (b *Bar) of(k Kind, value float64) { b.Kind, b.Value = k.Name, value }
