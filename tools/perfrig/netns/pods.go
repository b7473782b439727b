// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/tools/perfrig/spec"
	"github.com/podweir/podweir/tools/perfrig/stats"
)

const (
	// podsPayload makes frames of 1,000 bytes. What is measured is packets, but
	// with small ones the caps of makeHeavy would be so low that a flow is not
	// known to be heavy within a window: sketches fade the slower the lower the cap.
	podsPayload = 958
	podsFrame   = 1000
	// podsWindow is how long the sender keeps to one set of pods, podsTurns how
	// often each has its turn: what a packet costs depends by a third on where the
	// kernel puts a pod's program and maps, so the pod that is alone is attached
	// again each time.
	podsWindow = 400 * time.Millisecond
	podsTurns  = 8
	// heavyRoom is a flow's cap by its rate: five sevenths of the cap in its turn,
	// a quarter over all of the turns, are heavy and pass. A pod alone gets its
	// packets faster.
	heavyRoom, aloneRoom = 1.4, 2.0
	// pathLeast is the share of packets that must have been heavy, or light,
	// for the path to be the one that was to be measured: a flow is light until
	// its rate is known.
	pathLeast = 0.9
)

// among is a lab with one pod that is measured alone and those that are measured
// together.
type among struct {
	*run
	lab    *lab.Lab
	client *lab.Host
	// all begins with the one that is alone.
	all   []*lab.Pod
	sinks *lab.Sinks
	meter *programMeter
	// one is the limit of the pod that is alone, each that of the others.
	one, each *lab.Bandwidth
}

// pods measures what a packet costs where each goes to another one of so many
// shaped pods, in turns with one pod alone.
func (r *run) pods(ctx context.Context) {
	a := &among{run: r, lab: step.Get(lab.New(ctx, r.opts))}
	defer step.Close(a.lab.Close)
	a.client = step.Get(a.lab.Client("client"))
	bw, chain := a.chain()
	a.one, a.each = bw, bw
	network := step.Get(a.lab.Network("pods", chain...))
	a.all = step.Get(network.Pods(ctx, 1+a.cell.Workload.Pods, lab.PodOptions{Bandwidth: bw}))
	defer step.Close(func() error { return lab.DeletePods(context.WithoutCancel(ctx), a.all) })
	step.OK(a.said.err())
	hosts := make([]*lab.Host, len(a.all))
	for i, p := range a.all {
		hosts[i] = &p.Host
	}
	a.sinks = step.Get(lab.OpenSinks(hosts))
	defer step.Close(a.sinks.Close)
	// In all phases: the statistics cost each program a little.
	a.meter = &programMeter{stats: step.Get(ebpf.EnableStats(unix.BPF_STATS_RUN_TIME))}
	defer step.Close(a.meter.Close)
	a.meter.overhead = emptyProgram()
	a.set("statistics_cost_ns", a.meter.overhead)
	sent := a.path(ctx, "light")
	if r.cell.Phase.Kind == spec.Podweir {
		a.makeHeavy(ctx, sent)
		a.path(ctx, "heavy")
	}
}

// podsTurn is who is sent to in a window, and what that cost for each packet, in ns.
type podsTurn struct {
	name string
	to   *lab.Sinks
	// programs is the time of podweir's programs, sender that of the thread
	// that does all of the way.
	programs, sender []float64
}

// path measures one path in turns. It returns how many packets per second the
// pods got together, without the programs' time of the others.
func (a *among) path(ctx context.Context, name string) (perSecond float64) {
	windows := []*podsTurn{
		{name: "alone", to: a.sinks.Part(0, 1)},
		{name: "spread", to: a.sinks.Part(1, len(a.all))},
	}
	var all, light uint64
	var rates []float64
	for range podsTurns {
		a.reattach(ctx, windows)
		allBefore, lightBefore := a.counted()
		for _, w := range windows {
			sent := a.window(ctx, w)
			if w.name == "spread" {
				rates = append(rates, float64(sent.Packets)/sent.Elapsed.Seconds())
			}
		}
		allAfter, lightAfter := a.counted()
		all, light = all+allAfter-allBefore, light+lightAfter-lightBefore
	}
	a.took(name, all, light)
	a.tell(name, windows)
	return stats.Summarise(rates).Median
}

// reattach attaches the pod that is alone once more, and another one that is by
// itself, so that their programs and maps lie elsewhere. Then each has a turn
// that does not count: the first flows are light until they are known, and
// neighbours and routes are looked up once.
func (a *among) reattach(ctx context.Context, windows []*podsTurn) {
	if a.cell.Phase.Kind == spec.Podweir {
		a.again(ctx, a.all[:1], a.one)
		if others := a.all[1:]; len(others) == 1 {
			a.again(ctx, others, a.each)
		}
		step.OK(a.said.err())
		a.meter.reopen()
	}
	for _, w := range windows {
		a.window(ctx, &podsTurn{to: w.to})
	}
}

// again takes the limit from pods and gives it back.
func (a *among) again(ctx context.Context, pods []*lab.Pod, limit *lab.Bandwidth) {
	step.OK(lab.Reshape(ctx, pods, nil))
	step.OK(lab.Reshape(ctx, pods, limit))
}

// window sends for one turn.
func (a *among) window(ctx context.Context, w *podsTurn) *lab.FloodResult {
	before := sumOf(a.meter.programs...)
	sent := step.Get(a.lab.Spread(ctx, lab.Spread{
		From: a.client, To: w.to, PayloadBytes: podsPayload, Duration: podsWindow,
	}))
	did := sumOf(a.meter.programs...).sub(before)
	if sent.Refused > 0 || sent.Packets == 0 {
		step.OK(fmt.Errorf("%s: %d of %d datagrams were refused", w.name, sent.Refused, sent.Packets))
	}
	if a.cell.Phase.Kind == spec.Podweir {
		if did.runs < sent.Packets {
			step.OK(fmt.Errorf("%s: the programs ran %d times for %d packets", w.name, did.runs, sent.Packets))
		}
		w.programs = append(w.programs, a.meter.perPacket(did, sent.Packets))
	}
	w.sender = append(w.sender, float64(sent.Elapsed)/float64(sent.Packets))
	return sent
}

// tell records the medians of the windows, and those of the many pods by those
// of the one.
func (a *among) tell(path string, windows []*podsTurn) {
	alone := windows[0]
	for _, w := range windows {
		if len(w.programs) > 0 {
			a.set(w.name+"_"+path+"_cost_ns", stats.Summarise(w.programs).Median)
			if w != alone {
				a.set(w.name+"_"+path+"_cost_ratio", ratioOfTurns(w.programs, alone.programs))
			}
		}
		a.set(w.name+"_"+path+"_sender_cost_ns", stats.Summarise(w.sender).Median)
		if w != alone {
			a.set(w.name+"_"+path+"_sender_cost_ratio", ratioOfTurns(w.sender, alone.sender))
		}
	}
}

// ratioOfTurns is the median of the ratios of turns that were beside one another.
func ratioOfTurns(of, by []float64) float64 {
	var ratios []float64
	for i := range of {
		ratios = append(ratios, of[i]/by[i])
	}
	return stats.Summarise(ratios).Median
}

// makeHeavy gives every pod a cap of which its flow uses more than half.
func (a *among) makeHeavy(ctx context.Context, perSecond float64) {
	bits := perSecond * podsFrame * 8
	a.one = lab.RuntimeBandwidth(uint64(aloneRoom * bits))
	a.each = lab.RuntimeBandwidth(uint64(heavyRoom * bits / float64(len(a.all)-1)))
	step.OK(errors.Join(lab.Reshape(ctx, a.all[:1], a.one), lab.Reshape(ctx, a.all[1:], a.each), a.said.err()))
}

// took refuses a path that the packets did not take.
func (a *among) took(path string, all, light uint64) {
	if a.cell.Phase.Kind != spec.Podweir {
		return
	}
	share := float64(light) / float64(all)
	if path == "heavy" {
		share = 1 - share
	}
	if all == 0 || share < pathLeast {
		step.OK(fmt.Errorf("of %d packets only %.3f took the %s path", all, share, path))
	}
	a.set(path+"_path_share", share)
}

// counted is how many packets to all of the pods podweir counted, and how many of them as light.
func (a *among) counted() (all, light uint64) {
	if a.cell.Phase.Kind != spec.Podweir {
		return 0, 0
	}
	counters := step.Get(a.lab.Counters(a.cell.Workload.Direction, a.all...))
	for _, c := range counters {
		all += c.Packets
	}
	return all, counters["light"].Packets
}
