// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"time"

	"github.com/podweir/podweir/plugin/cni"
	"github.com/podweir/podweir/plugin/datapath"
)

// PodRate is one direction of one interface over an interval.
type PodRate struct {
	Pod       string `json:"pod"`
	Interface string `json:"interface"`
	Direction string `json:"direction"`

	CapBitsPerSecond uint64 `json:"capBitsPerSecond"`
	// SentBitsPerSecond left the queue; without one it is what passed.
	SentBitsPerSecond  float64 `json:"sentBitsPerSecond"`
	LightBitsPerSecond float64 `json:"lightBitsPerSecond"`
	HeavyBitsPerSecond float64 `json:"heavyBitsPerSecond"`
	DropsPerSecond     float64 `json:"dropsPerSecond"`
	WaitingBytes       uint64  `json:"waitingBytes"`

	HeavyFlows []datapath.HeavyFlow `json:"heavyFlows"`
	// FlowBitsPerSecond belongs to HeavyFlows, in the same order.
	FlowBitsPerSecond []float64 `json:"flowBitsPerSecond"`
}

type rateKey struct{ attachment, iface, direction string }

// Rates compares two reports that are elapsed apart. An interface that is new
// counts from zero.
func Rates(before, now *Report, elapsed time.Duration) []PodRate {
	old := make(map[rateKey]*Direction)
	each(before, func(k rateKey, _ *Attachment, d *Direction) { old[k] = d })
	rates := []PodRate{}
	each(now, func(k rateKey, a *Attachment, d *Direction) {
		was := old[k]
		if was == nil {
			was = &Direction{}
		}
		rates = append(rates, podRate(a, was, d, elapsed.Seconds()))
	})
	return rates
}

func each(r *Report, f func(rateKey, *Attachment, *Direction)) {
	for i := range r.Attachments {
		a := &r.Attachments[i]
		for j := range a.Directions {
			d := &a.Directions[j]
			f(rateKey{a.ID.String(), a.Interface.PodName, d.Direction}, a, d)
		}
	}
}

func podRate(a *Attachment, was, now *Direction, seconds float64) PodRate {
	p := PodRate{
		Pod: a.Pod, Interface: a.Interface.PodName, Direction: now.Direction,
		CapBitsPerSecond: now.RateBitsPerSecond, HeavyFlows: now.HeavyFlows,
	}
	if p.Pod == "" {
		p.Pod = a.ID.Network + "/" + a.ID.ContainerID
	}
	bits := func(before, after uint64) float64 {
		if after < before {
			before = 0 // attached anew in between
		}
		return float64(after-before) * 8 / seconds
	}
	sum := func(d *Direction, names ...string) (packets, bytes uint64) {
		for _, c := range d.Counters {
			for _, n := range names {
				if c.Disposition == n {
					packets += c.Packets
					bytes += c.Bytes
				}
			}
		}
		return packets, bytes
	}
	delta := func(names ...string) (packets, bitRate float64) {
		p0, b0 := sum(was, names...)
		p1, b1 := sum(now, names...)
		return bits(p0, p1) / 8, bits(b0, b1)
	}
	_, p.LightBitsPerSecond = delta("light")
	_, p.HeavyBitsPerSecond = delta("conforming", "paced", "marked")
	_, p.SentBitsPerSecond = delta("light", "conforming", "paced", "marked", "exempt")
	p.DropsPerSecond, _ = delta("dropped-horizon", "dropped-early", "dropped-policed", "dropped-ceiling")
	if q := now.Qdisc; q != nil {
		before := was.Qdisc
		if before == nil {
			before = &cni.QueueStatistics{}
		}
		p.SentBitsPerSecond = bits(before.Bytes, q.Bytes)
		p.DropsPerSecond += bits(before.Drops, q.Drops) / 8
		p.WaitingBytes = q.BacklogBytes
	}
	for _, f := range now.HeavyFlows {
		var bytes uint64
		for _, w := range was.HeavyFlows {
			if w.Name() == f.Name() {
				bytes = w.Bytes
			}
		}
		p.FlowBitsPerSecond = append(p.FlowBitsPerSecond, bits(bytes, f.Bytes))
	}
	return p
}
