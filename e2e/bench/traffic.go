// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/traffic"
)

const (
	mbit = 1_000_000
	gbit = 1000 * mbit

	capDuration        = 4 * time.Second
	retransmitDuration = 13 * time.Second
	keptTurns          = 5
	keptTurn           = 1500 * time.Millisecond
	keptSlack          = 100 * time.Microsecond
	keptShare          = 0.05
)

var allCaps = []uint64{mbit, 10 * mbit, 100 * mbit, gbit, 10 * gbit}

func capName(c uint64) string {
	if c >= gbit {
		return fmt.Sprintf("%dG", c/gbit)
	}
	return fmt.Sprintf("%dM", c/mbit)
}

func benchCaps(ctx context.Context, rep *report) (err error) {
	r, err := traffic.NewRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := rep.table("Caps",
		"Wire bytes behind the shaper, a fresh pod each. Worst second and use as shares of the cap; excess is the smallest burst for which bytes <= cap x t + burst holds in every window, in ms of the cap. Light flows start and stop during the rows with +light.",
		"cap", "direction", "load", "worst 1 s", "allowed", "excess, ms", "used", "unshaped, Mbit/s", "")
	loads := []traffic.Load{
		traffic.TCP1, traffic.TCP1BBR, traffic.TCP20, traffic.TCP6, traffic.UDP, traffic.UDP6,
		traffic.UDPTiny, traffic.UDPECT0, traffic.UDPPorts,
	}
	verdicts := map[uint64]*capVerdict{}
	for _, capacity := range allCaps {
		v := &capVerdict{}
		verdicts[capacity] = v
		for _, d := range traffic.Directions {
			for _, load := range loads {
				c := traffic.Case{
					Cap: capacity, Direction: d, Load: load, Duration: capDuration,
					Light: load.Name == traffic.TCP1.Name,
				}
				got, err := r.Measure(ctx, c)
				if err != nil {
					return fmt.Errorf("%s %s %s: %w", capName(capacity), d, load.Name, err)
				}
				v.add(t, got)
			}
		}
		v.bars(rep, capacity)
	}
	return nil
}

// capVerdict sums up the rows of a cap.
type capVerdict struct {
	rows, notOffered, missed int
	worst                    *traffic.CapResult
	leastUsed                *traffic.CapResult
}

func (v *capVerdict) add(t *table, got *traffic.CapResult) {
	name := got.Load.Name
	if got.Light {
		name += " +light"
	}
	word := "ok"
	v.rows++
	switch err := got.Err(); {
	case !got.Offered():
		word = "not offered"
		v.notOffered++
	case err != nil:
		word = "MISS"
		v.missed++
	}
	t.row(capName(got.Cap), got.Direction.String(), name, fmt.Sprintf("%.4f", got.WorstShare()),
		fmt.Sprintf("%.4f", float64(got.Limit())*8/float64(got.Cap)),
		fmt.Sprintf("%.2f", got.Excess*8*1000/float64(got.Cap)),
		fmt.Sprintf("%.3f", got.Used), fmt.Sprintf("%.0f", got.Carried/mbit), word)
	if !got.Offered() {
		return
	}
	if v.worst == nil || got.Worst > v.worst.Worst {
		v.worst = got
	}
	if got.UseCounts() && (v.leastUsed == nil || got.Used < v.leastUsed.Used) {
		v.leastUsed = got
	}
}

func (v *capVerdict) bars(rep *report, capacity uint64) {
	if v.worst != nil {
		rep.bar(v.worst.Worst <= v.worst.Limit(), "cap "+capName(capacity)+", worst second of "+
			fmt.Sprintf("%d loads", v.rows-v.notOffered),
			fmt.Sprintf("%.4f of the cap (%s %s)", v.worst.WorstShare(), v.worst.Load.Name, v.worst.Direction),
			fmt.Sprintf("at most %.4f", float64(v.worst.Limit())*8/float64(capacity)))
	}
	if v.leastUsed != nil {
		rep.bar(v.leastUsed.Used >= traffic.LeastUse, "use of "+capName(capacity)+" by one TCP flow, cubic and bbr",
			fmt.Sprintf("at least %.3f (%s %s)", v.leastUsed.Used, v.leastUsed.Load.Name, v.leastUsed.Direction),
			fmt.Sprintf("at least %.2f", traffic.LeastUse))
	}
}

func benchKept(ctx context.Context, rep *report) (err error) {
	r, err := traffic.NewRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := rep.table("A kept connection beside one cubic bulk flow at 100M",
		"200 requests/s of 128 bytes, turns of 1.5 s with the unlimited bystander. Milliseconds.",
		"bulk", "plugin", "p50", "p99", "bystander p50", "bystander p99", "failed")
	const capacity = 100 * mbit
	for _, d := range traffic.Directions {
		kept := map[string]*traffic.Kept{}
		for _, plugin := range []string{"reference bandwidth", "tuned bandwidth", "podweir"} {
			k, err := keptOf(ctx, r, plugin, d, capacity)
			if err != nil {
				return err
			}
			kept[plugin] = k
			t.row(d.String(), plugin, millis3(k.Pod.Quantile(0.5)), millis3(k.Pod.Quantile(0.99)),
				millis3(k.Bystander.Quantile(0.5)), millis3(k.Bystander.Quantile(0.99)), fmt.Sprint(k.Pod.Failed()))
		}
		got, ref := kept["podweir"], kept["reference bandwidth"].Pod.Quantile(0.99)
		p99, limit := got.Pod.Quantile(0.99), 2*got.Bystander.Quantile(0.99)+keptSlack
		rep.bar(p99 <= limit, "kept connection beside bulk "+d.String()+" at 100M, p99 against the bystander",
			millis3(p99)+" ms", "at most "+millis3(limit)+" ms (2 x bystander + 0.1)")
		share := float64(p99) / float64(ref)
		rep.bar(share <= keptShare, "the same against the reference plugin",
			fmt.Sprintf("%.4f of %s ms", share, millis3(ref)), fmt.Sprintf("at most %.2f", keptShare))
	}
	return nil
}

func makeTarget(ctx context.Context, r *traffic.Rig, plugin string, capacity uint64) (*traffic.Target, error) {
	switch plugin {
	case "reference bandwidth":
		return r.Reference(ctx, capacity, lab.KubeletBurst)
	case "tuned bandwidth":
		return r.Reference(ctx, capacity, traffic.TunedBurst)
	default:
		return r.Shaped(ctx, capacity, nil)
	}
}

func keptOf(ctx context.Context, r *traffic.Rig, plugin string, d traffic.Direction, capacity uint64) (*traffic.Kept, error) {
	pod, err := makeTarget(ctx, r, plugin, capacity)
	if err != nil {
		return nil, err
	}
	k, err := pod.KeptBeside(ctx, d, traffic.TCP1, capacity, keptTurns, keptTurn)
	return k, errors.Join(err, pod.Close(ctx))
}

func benchRetransmits(ctx context.Context, rep *report) (err error) {
	r, err := traffic.NewRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := rep.table("Retransmits of one cubic elephant",
		"13 s; the first 3 s are slow start. Tuned is the reference plugin with a burst of 64 kB and its 25 ms.",
		"cap", "direction", "plugin", "slow start", "after", "segments after", "share", "used")
	for _, capacity := range []uint64{10 * mbit, 100 * mbit, gbit} {
		for _, d := range traffic.Directions {
			results := map[string]*traffic.CapResult{}
			for _, plugin := range []string{"tuned bandwidth", "podweir"} {
				pod, err := makeTarget(ctx, r, plugin, capacity)
				if err != nil {
					return err
				}
				got, err := r.MeasureOn(ctx, pod, traffic.Case{
					Cap: capacity, Direction: d, Load: traffic.TCP1, Duration: retransmitDuration,
				})
				if err := errors.Join(err, pod.Close(ctx)); err != nil {
					return err
				}
				results[plugin] = got
				t.row(capName(capacity), d.String(), plugin, fmt.Sprintf("%.0f", got.Early), fmt.Sprintf("%.0f", got.Late),
					fmt.Sprintf("%.0f", got.Segments), fmt.Sprintf("%.3f %%", 100*got.Late/max(got.Segments, 1)),
					fmt.Sprintf("%.3f", got.Used))
			}
			got, tuned := results["podweir"], results["tuned bandwidth"]
			rep.bar(traffic.RetransmitsErr(got, tuned) == nil,
				fmt.Sprintf("retransmits at %s %s after 3 s", capName(capacity), d),
				fmt.Sprintf("%.0f (%.3f %%)", got.Late, 100*got.Late/max(got.Segments, 1)),
				fmt.Sprintf("at most %.0f + 10 per 10 s, or 0.5 %%", tuned.Late))
		}
	}
	return nil
}

func millis3(d time.Duration) string {
	return fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond))
}
