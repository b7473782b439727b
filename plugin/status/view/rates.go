// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view

import (
	"net/netip"

	"github.com/podweir/podweir/plugin/terms"
)

// Counters are of one limit, since the pod was attached; bytes are on the wire.
type Counters struct {
	// SentBytes left the queue, or passed where there is none.
	SentBytes uint64 `json:"sentBytes"`
	// LightBytes and HeavyBytes came to the queue, by class.
	LightBytes uint64 `json:"lightBytes"`
	HeavyBytes uint64 `json:"heavyBytes"`
	// ExemptBytes are those of SentBytes that the limit does not count: of exempt networks.
	ExemptBytes uint64 `json:"exemptBytes,omitempty"`
	// DroppedBytes were dropped by the program, before the queue.
	DroppedBytes uint64 `json:"droppedBytes,omitempty"`
	// Drops are packets that the program or the queue dropped.
	Drops uint64 `json:"drops"`
	// WaitingBytes wait now.
	WaitingBytes uint64 `json:"waitingBytes"`
	// WouldWaitBytes and WouldDropBytes are of a limit that is observed only: what passed
	// and would have waited, or been dropped.
	WouldWaitBytes uint64 `json:"wouldWaitBytes,omitempty"`
	WouldDropBytes uint64 `json:"wouldDropBytes,omitempty"`
	// HeavyFlows are the current ones, the largest first.
	HeavyFlows []terms.Flow `json:"heavyFlows,omitempty"`
}

// PodsByAddress are the names of pods by their addresses, "" where two pods have one.
type PodsByAddress map[netip.Addr]string

// Add adds an address of a pod.
func (p PodsByAddress) Add(at netip.Addr, pod string) {
	if name, there := p[at]; there && name != pod {
		pod = ""
	}
	p[at] = pod
}

// NameEnds tells the heavy flows which pods are at their ends.
func (n *Status) NameEnds(pods PodsByAddress) {
	for i := range n.Pods {
		for j := range n.Pods[i].Limits {
			flows := n.Pods[i].Limits[j].HeavyFlows
			for k := range flows {
				flows[k].SourcePod, flows[k].DestPod = pods[flows[k].Source.Addr().Unmap()], pods[flows[k].Dest.Addr().Unmap()]
			}
		}
	}
}

// Ends says which pods are at the ends of a flow, without the one whose flow it is.
func Ends(f *terms.Flow, pod string) (all []string) {
	if f.SourcePod != "" && f.SourcePod != pod {
		all = append(all, f.Source.Addr().String()+" is "+terms.Printable(f.SourcePod))
	}
	if f.DestPod != "" && f.DestPod != pod {
		all = append(all, f.Dest.Addr().String()+" is "+terms.Printable(f.DestPod))
	}
	return all
}

// PodRate is what one direction of one interface carries now.
type PodRate struct {
	// Node is set where there are several.
	Node      string `json:"node,omitempty"`
	Pod       string `json:"pod"`
	Interface string `json:"interface"`
	// Error says why nothing is known of the pod; then the rest is empty.
	Error string `json:"error,omitempty"`
	// State is set where the pod is not limited as it should be.
	State State `json:"state,omitempty"`

	terms.Limit
	// PastBitsPerSecond is what the pod's device carried past podweir, 0 if that is next to
	// nothing or not known; see [Least].
	PastBitsPerSecond float64 `json:"pastBitsPerSecond,omitempty"`
	// Drops are packets since the pod was attached.
	Drops uint64 `json:"drops,omitempty"`
	// SentBitsPerSecond left the queue; without one it is what passed.
	SentBitsPerSecond  float64 `json:"sentBitsPerSecond"`
	LightBitsPerSecond float64 `json:"lightBitsPerSecond"`
	HeavyBitsPerSecond float64 `json:"heavyBitsPerSecond"`
	// ExemptBitsPerSecond of SentBitsPerSecond are of exempt networks.
	ExemptBitsPerSecond float64 `json:"exemptBitsPerSecond,omitempty"`
	// DroppedBitsPerSecond were dropped before the queue.
	DroppedBitsPerSecond float64 `json:"droppedBitsPerSecond,omitempty"`
	DropsPerSecond       float64 `json:"dropsPerSecond"`
	WaitingBytes         uint64  `json:"waitingBytes"`
	// WouldWaitBitsPerSecond and WouldDropBitsPerSecond are of a limit that is observed
	// only: what of it would have waited, or been dropped.
	WouldWaitBitsPerSecond float64 `json:"wouldWaitBitsPerSecond,omitempty"`
	WouldDropBitsPerSecond float64 `json:"wouldDropBitsPerSecond,omitempty"`

	// HeavyFlows and FlowBitsPerSecond are never nil: in JSON they are lists, if empty ones.
	HeavyFlows []terms.Flow `json:"heavyFlows"`
	// FlowBitsPerSecond is what each of HeavyFlows offers, in the same order: it is counted
	// before the queue, and may be more than the limit lets through.
	FlowBitsPerSecond []float64 `json:"flowBitsPerSecond"`
}

// label is the pod, with the interface unless that is its first.
func (r *PodRate) label() string {
	if r.Interface == "eth0" {
		return terms.Printable(r.Pod)
	}
	return terms.Printable(r.Pod) + " " + terms.Printable(r.Interface)
}

// goesPast says that packets went past podweir, and nothing else holds them to the limit.
func (r *PodRate) goesPast() bool { return r.PastBitsPerSecond > 0 && !r.Ceiling && !r.Observed() }

// Share is what is carried of the limit, 1 for all of it. Exempt networks are not, nor light flows under elephants.
func (r *PodRate) Share() float64 {
	if r.Rate == 0 {
		return 0
	}
	counts := r.SentBitsPerSecond - r.ExemptBitsPerSecond
	if r.Policy.Is == terms.PolicyElephants {
		counts -= r.LightBitsPerSecond
	}
	return max(counts, 0) / float64(r.Rate)
}

// OfferedBitsPerSecond is what comes to the limit: what is queued and what is dropped. Where
// no program counts that it is what passed.
func (r *PodRate) OfferedBitsPerSecond() float64 {
	if offered := r.LightBitsPerSecond + r.HeavyBitsPerSecond + r.ExemptBitsPerSecond + r.DroppedBitsPerSecond; offered > 0 {
		return offered
	}
	return r.SentBitsPerSecond
}

// Part is which part of what is offered a flow offers, at most 1.
func (r *PodRate) Part(flowBitsPerSecond float64) float64 {
	if offered := r.OfferedBitsPerSecond(); offered > 0 {
		return min(flowBitsPerSecond/offered, 1)
	}
	return 0
}

type rateKey struct {
	node, pod, iface string
	direction        terms.Direction
}

func (r *PodRate) key() rateKey { return rateKey{r.Node, r.Pod, r.Interface, r.Direction.Is} }

// Rates returns what each direction carried between two looks, and the pods of which
// nothing is known. A counter that went back was begun again from zero in between.
func Rates(before, now *Status) []PodRate {
	old := map[rateKey]*Limit{}
	for i := range before.Pods {
		p := &before.Pods[i]
		for j := range p.Limits {
			l := &p.Limits[j]
			old[rateKey{"", p.Pod, l.Interface, l.Direction.Is}] = l
		}
	}
	rates := []PodRate{}
	for i := range now.Pods {
		p := &now.Pods[i]
		if len(p.Limits) == 0 {
			rates = append(rates, PodRate{Pod: p.Pod, Error: p.Cause, HeavyFlows: []terms.Flow{}, FlowBitsPerSecond: []float64{}})
		}
		for j := range p.Limits {
			l := &p.Limits[j]
			was := old[rateKey{"", p.Pod, l.Interface, l.Direction.Is}]
			if was == nil {
				was = &Limit{}
			}
			seconds := between(before, now, was, l)
			rate := podRate(p.Pod, l, &was.Counters, seconds)
			rate.PastBitsPerSecond = 8 * float64(Least(was.Passing, l.Passing)) / seconds
			if !p.State.AsWanted() {
				rate.State = p.State
			} else if rate.goesPast() {
				rate.State = NotLimited
			}
			rates = append(rates, rate)
		}
	}
	return rates
}

// between are the seconds between two readings of the counters of a limit. A look takes
// time, and longer on a busy node: the time of the look is not that of its counters.
func between(before, now *Status, was, l *Limit) float64 {
	from, to := was.Read, l.Read
	if from.IsZero() || to.IsZero() {
		from, to = before.Time, now.Time
	}
	return max(to.Sub(from).Seconds(), 1e-3)
}

// From which part of what a device carried, and from how many bytes, packets went past
// podweir: what is on its way between two counters is less.
const (
	pastShare = 0.1
	pastBytes = 128 << 10
)

// Passing has two readings of the bytes that a pod's device carried, and two of those that went
// through podweir. The first of Seen was read before the second of Device, and the second of Seen
// after the first of Device. Seen is nil if no counter shows what went through podweir.
type Passing struct {
	Device [2]uint64
	Seen   *[2]uint64
}

// Past returns how many bytes a device carried between two looks that did not go through podweir,
// 0 if they are too few to tell. It counts podweir's bytes from a reading before the device's at
// the first look to one after the device's at the second. So what passed between two readings
// counts as podweir's.
func (is *Passing) Past(was *Passing) uint64 {
	if was.Seen == nil || is.Seen == nil || is.Device[0] < was.Device[1] || is.Seen[1] < was.Seen[0] {
		return 0
	}
	carried, seen := is.Device[0]-was.Device[1], is.Seen[1]-was.Seen[0]
	if carried < seen+pastBytes || float64(carried-seen) < pastShare*float64(carried) {
		return 0
	}
	return carried - seen
}

// Least is [Passing.Past] by the counter of podweir's that saw most: one that began again, or that packets did not come to
// for a moment, is believed less than another. The counters come in the same order in both lists.
func Least(was, is []Passing) uint64 {
	if len(was) == 0 || len(was) != len(is) {
		return 0
	}
	n := is[0].Past(&was[0])
	for i := range is {
		n = min(n, is[i].Past(&was[i]))
	}
	return n
}

func podRate(pod string, l *Limit, was *Counters, seconds float64) PodRate {
	each := func(before, after uint64) float64 {
		if after < before {
			before = 0
		}
		return float64(after-before) / seconds
	}
	r := PodRate{
		Pod: pod, Interface: l.Interface, Limit: l.Limit, Drops: l.Drops,
		SentBitsPerSecond:    8 * each(was.SentBytes, l.SentBytes),
		LightBitsPerSecond:   8 * each(was.LightBytes, l.LightBytes),
		HeavyBitsPerSecond:   8 * each(was.HeavyBytes, l.HeavyBytes),
		ExemptBitsPerSecond:  8 * each(was.ExemptBytes, l.ExemptBytes),
		DroppedBitsPerSecond: 8 * each(was.DroppedBytes, l.DroppedBytes),
		DropsPerSecond:       each(was.Drops, l.Drops),
		WaitingBytes:         l.WaitingBytes, HeavyFlows: append([]terms.Flow{}, l.HeavyFlows...), FlowBitsPerSecond: []float64{},
		WouldWaitBitsPerSecond: 8 * each(was.WouldWaitBytes, l.WouldWaitBytes),
		WouldDropBitsPerSecond: 8 * each(was.WouldDropBytes, l.WouldDropBytes),
	}
	for i := range l.HeavyFlows {
		f := &l.HeavyFlows[i]
		// A flow that was not among them may have sent before: its bytes are since then.
		rate := float64(f.Bytes) / max(seconds, f.Since.Seconds())
		for j := range was.HeavyFlows {
			if was.HeavyFlows[j].Name() == f.Name() {
				rate = each(was.HeavyFlows[j].Bytes, f.Bytes)
			}
		}
		r.FlowBitsPerSecond = append(r.FlowBitsPerSecond, 8*rate)
	}
	return r
}

// From which share of its limit a direction is at its limit, and from which part of
// what is offered one flow offers most.
const (
	atLimitShare = 0.9
	mostOfIt     = 0.5
)

// Verdict says why a direction is at its limit; "" if it is not.
func (r *PodRate) Verdict() string {
	if r.Share() < atLimitShare {
		return ""
	}
	for _, rate := range r.FlowBitsPerSecond {
		if r.Part(rate) >= mostOfIt {
			return "at its limit; one flow offers most of the traffic:"
		}
	}
	return "at its limit; no flow offers most of it: the limit is too low for all of them"
}
