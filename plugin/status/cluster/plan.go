// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/status/view"
)

// Plan says what would change if the limits that are observed only were enforced.
type Plan struct {
	Schema int `json:"schema"`
	// Pods have limits that are observed. Those that would lose packets come first.
	Pods []Planned `json:"pods"`
	// Groups are the limits that pods of a namespace would have together on a node.
	Groups []PlannedGroup `json:"groups,omitempty"`
	// Limited is how many pods are limited already: nothing changes for them.
	Limited int `json:"limited"`
	// Unlimited request a limit and have none, with the node in front of the others.
	Unlimited []PlannedUnlimited `json:"unlimited"`
	// None is how many pods request no limit, Untold how many nodes do not tell of pods
	// without a limit.
	None   int `json:"none"`
	Untold int `json:"untold,omitempty"`

	nodes *Nodes
}

// Planned is a pod whose limits are observed.
type Planned struct {
	Pod        string             `json:"pod"`
	Node       string             `json:"node"`
	Directions []PlannedDirection `json:"directions"`
	// Notes are those of [view.Pod]: what of its annotations is not accepted or bounded.
	Notes []string `json:"notes,omitempty"`
}

// PlannedUnlimited is a pod without a limit.
type PlannedUnlimited struct {
	UnlimitedPod

	Node string `json:"node"`
}

// PlannedDirection is one limit that is observed.
type PlannedDirection struct {
	// Effect is what the limit would do.
	Effect Effect `json:"effect"`
	view.PodRate
	// WouldWaitShare and WouldDropShare are parts of all bytes since the pod was attached,
	// 1 for all of them.
	WouldWaitShare float64 `json:"wouldWaitShare"`
	WouldDropShare float64 `json:"wouldDropShare"`
}

// Effect is what a limit would do to a direction.
type Effect string

// The effects, the strongest first.
const (
	// DropsNow and WaitsNow: packets would be dropped, or wait, between the two looks.
	DropsNow Effect = "drops-now"
	WaitsNow Effect = "waits-now"
	// DidExceed: some would have, since the pod was attached, and none now.
	DidExceed Effect = "did-exceed"
	// NoEffect: the direction has stayed below its limit.
	NoEffect Effect = "none"
)

var effects = []Effect{DropsNow, WaitsNow, DidExceed, NoEffect}

// MakePlan makes a plan of two looks, for the pods of a namespace, "" for all.
func MakePlan(before, now *Nodes, namespace string) *Plan {
	p := &Plan{Schema: Schema, Pods: []Planned{}, Unlimited: []PlannedUnlimited{}, nodes: now}
	of := func(pod string) bool { return namespace == "" || strings.HasPrefix(pod, namespace+"/") }
	rates := map[string][]view.PodRate{}
	for _, r := range Rates(before, now) {
		rates[r.Node+" "+r.Pod] = append(rates[r.Node+" "+r.Pod], r)
	}
	for i := range now.Nodes {
		n := &now.Nodes[i]
		if noPods(n) != "" {
			continue
		}
		for j := range n.Answer.Status.Pods {
			if pod := &n.Answer.Status.Pods[j]; of(pod.Pod) {
				p.add(n.Name, pod, rates[n.Name+" "+pod.Pod])
			}
		}
		p.Groups = append(p.Groups, planGroups(n.Name, n.Answer.Status.Pods, rates, of)...)
		p.addUnlimited(n, namespace, of)
	}
	slices.SortFunc(p.Pods, func(a, b Planned) int {
		return cmp.Or(a.effect()-b.effect(), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Node, b.Node))
	})
	return p
}

// add puts a pod that podweir knows of where it belongs.
func (p *Plan) add(node string, pod *view.Pod, rates []view.PodRate) {
	one := Planned{Pod: pod.Pod, Node: node, Notes: pod.Notes}
	for i := range pod.Limits {
		if l := &pod.Limits[i]; l.Observed() {
			one.Directions = append(one.Directions, planned(node, pod.Pod, l, rates))
		}
	}
	switch {
	case len(one.Directions) > 0:
		p.Pods = append(p.Pods, one)
	case len(pod.Limits) > 0:
		p.Limited++
	default:
		p.Unlimited = append(p.Unlimited, PlannedUnlimited{UnlimitedPod{Pod: pod.Pod, Cause: pod.Cause}, node})
	}
}

// planned is what a limit would do. Where a node answered once there are no rates.
func planned(node, pod string, l *view.Limit, rates []view.PodRate) PlannedDirection {
	d := PlannedDirection{
		PodRate: view.PodRate{
			Node: node, Pod: pod, Interface: l.Interface, Limit: l.Limit, HeavyFlows: []view.Flow{}, FlowBitsPerSecond: []float64{},
		},
		Effect: NoEffect,
	}
	for i := range rates {
		if rates[i].Interface == l.Interface && rates[i].Direction == l.Direction {
			d.PodRate = rates[i]
		}
	}
	if l.SentBytes > 0 {
		d.WouldWaitShare = float64(l.WouldWaitBytes) / float64(l.SentBytes)
		d.WouldDropShare = float64(l.WouldDropBytes) / float64(l.SentBytes)
	}
	switch {
	case d.WouldDropBitsPerSecond > 0:
		d.Effect = DropsNow
	case d.WouldWaitBitsPerSecond > 0:
		d.Effect = WaitsNow
	case l.WouldDropBytes > 0 || l.WouldWaitBytes > 0:
		d.Effect = DidExceed
	}
	return d
}

// addUnlimited adds what the agent knows of the pods that podweir has no limit for.
func (p *Plan) addUnlimited(n *Node, namespace string, of func(string) bool) {
	u := n.Answer.Unlimited
	if u == nil {
		p.Untold++
		return
	}
	for name, pods := range u.None {
		if namespace == "" || name == namespace {
			p.None += pods
		}
	}
	for _, pod := range u.Pods {
		known := slices.ContainsFunc(n.Answer.Status.Pods, func(o view.Pod) bool { return o.Pod == pod.Pod })
		if of(pod.Pod) && !known {
			p.Unlimited = append(p.Unlimited, PlannedUnlimited{pod, n.Name})
		}
	}
}

// effect is the place of the strongest effect in their list.
func (p *Planned) effect() int {
	strongest := len(effects)
	for i := range p.Directions {
		strongest = min(strongest, slices.Index(effects, p.Directions[i].Effect))
	}
	return strongest
}

// Exit is the exit status and why it is not 0: 2 if a node is unknown.
func (p *Plan) Exit() (status int, why string) {
	if n := p.nodes.Unknown(); n > 0 {
		return ExitUnknown, fmt.Sprintf("%d of %d nodes are unknown", n, p.nodes.Total())
	}
	return ExitOK, ""
}
