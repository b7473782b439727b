// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/step"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
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
	a.meter = step.Get(meterPrograms(ownPrograms))
	defer step.Close(a.meter.Close)
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
	var took packets
	var rates []float64
	for range podsTurns {
		a.reattach(ctx, windows)
		before := a.counted()
		for _, w := range windows {
			sent := a.window(ctx, w)
			if w.name == "spread" {
				rates = append(rates, float64(sent.Packets)/sent.Elapsed.Seconds())
			}
		}
		after := a.counted()
		took.all, took.light = took.all+after.all-before.all, took.light+after.light-before.light
	}
	a.took(name, took.all, took.light)
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
		step.OK(errors.Join(a.said.err(), a.meter.reopen(ownPrograms)))
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
	before := step.Get(a.meter.read())
	sent := step.Get(a.lab.Spread(ctx, lab.Spread{
		From: a.client, To: w.to, PayloadBytes: podsPayload, Duration: podsWindow,
	}))
	did := step.Get(a.meter.read()).sub(before)
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

// counted sums up podweir's counters of what goes to all of the pods.
func (a *among) counted() packets {
	if a.cell.Phase.Kind != spec.Podweir {
		return packets{}
	}
	return step.Get(counted(a.lab, a.cell.Workload.Direction, func(container string) bool { return ofLab(a.lab, container) }))
}

// nodeStatus is what podweir tells of all attachments of the machine, which may
// be those of other labs, too.
func nodeStatus(l *lab.Lab) (rep *status.Report, err error) {
	err = l.Node().Do(func() error {
		node, err := engine.Open(engine.DefaultPaths)
		if err != nil {
			return err
		}
		defer node.Close()
		rep, err = status.Collect(node)
		return err
	})
	return rep, err
}

// ofLab says whether a container is one of the lab's pods.
func ofLab(l *lab.Lab, containerID string) bool {
	return strings.HasPrefix(containerID, l.Name()+"-")
}

// packets are what a direction's programs counted.
type packets struct{ light, all, marked, dropped uint64 }

// counted sums up podweir's own counters of a direction of some attachments. Of
// none is an error.
func counted(l *lab.Lab, direction string, of func(containerID string) bool) (sum packets, err error) {
	rep, err := nodeStatus(l)
	if err != nil {
		return sum, err
	}
	found := false
	for i := range rep.Attachments {
		if !of(rep.Attachments[i].ID.ContainerID) {
			continue
		}
		for _, d := range rep.Attachments[i].Directions {
			if d.Direction.String() != direction {
				continue
			}
			found = true
			for _, c := range d.Counters {
				sum.all += c.Packets
				switch c.Disposition {
				case "light":
					sum.light += c.Packets
				case "marked":
					sum.marked += c.Packets
				case "dropped-early", "dropped-horizon":
					sum.dropped += c.Packets
				}
			}
		}
	}
	if !found {
		return sum, fmt.Errorf("podweir's status has nothing of the %s of these pods", direction)
	}
	return sum, nil
}
