// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
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
	// None is how many pods request no limit.
	None int `json:"none"`

	nodes     *Nodes
	namespace string
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
	p := &Plan{Schema: Schema, Pods: []Planned{}, Unlimited: []PlannedUnlimited{}, nodes: now, namespace: namespace}
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
			Node: node, Pod: pod, Interface: l.Interface, Limit: l.Limit, HeavyFlows: []terms.Flow{}, FlowBitsPerSecond: []float64{},
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

// Exit is that of the nodes.
func (p *Plan) Exit() (status int, why string) { return p.nodes.UnknownExit() }

// maxPlanned is up to how many directions with an effect are listed unless all are.
const maxPlanned = 10

// Text is the plan for people: nodes that are unknown, what limits would do now and would
// have done, which pods would be limited, and which request what they do not get. All
// lists every pod.
func (p *Plan) Text(all bool) string {
	var b strings.Builder
	if unknown := p.nodes.group(noPods); unknown.count+p.nodes.Missing > 0 {
		b.WriteString(p.nodes.unknownText(unknown))
	}
	b.WriteString(terms.Paragraph("", p.head(), 0))
	for _, section := range []struct {
		word   string
		effect Effect
	}{{"WOULD DROP", DropsNow}, {"WOULD WAIT", WaitsNow}, {"BEFORE", DidExceed}} {
		b.WriteString(p.section(section.word, section.effect, all))
	}
	for i := range p.Groups {
		b.WriteString(terms.Paragraph(view.Pad("TOGETHER", 12), p.Groups[i].text(all), 0))
	}
	b.WriteString(p.table(all))
	b.WriteString(p.notTaken().text("NOTE", "pod"))
	left, nobody := p.unlimited()
	b.WriteString(left.text("LEFT", "pod"))
	b.WriteString(nobody.text("NO LIMIT", "pod"))
	if p.None > 0 {
		b.WriteString(terms.Paragraph("", count(p.None, "pod")+" without a requested limit would have none.", 0))
	}
	return b.String()
}

func (p *Plan) head() string {
	limited := ""
	if p.Limited > 0 {
		limited = fmt.Sprintf(" Nothing changes for %s with limits that are enforced already.", count(p.Limited, "pod"))
	}
	switch {
	case len(p.Pods)+p.Limited+len(p.Unlimited)+p.None == 0 && p.namespace != "":
		return "No node that answered knows a pod of the namespace " + p.namespace + "."
	case len(p.Pods) == 0:
		return "No limit is observed only: to enforce limits would change nothing." + limited
	}
	byEffect := map[Effect]int{}
	for i := range p.Pods {
		byEffect[effects[p.Pods[i].effect()]]++
	}
	return fmt.Sprintf("Enforcement would limit %s, observed now: %d would lose packets at this moment, %d would only wait, "+
		"%d went beyond a limit before, %d stayed below.", count(len(p.Pods), "pod"),
		byEffect[DropsNow], byEffect[WaitsNow], byEffect[DidExceed], byEffect[NoEffect]) + limited
}

func (p *Plan) section(word string, effect Effect, all bool) string {
	var b strings.Builder
	listed, more := 0, 0
	for i := range p.Pods {
		for j := range p.Pods[i].Directions {
			d := &p.Pods[i].Directions[j]
			switch {
			case d.Effect != effect:
			case listed == maxPlanned && !all:
				more++
			default:
				listed++
				b.WriteString(terms.Paragraph(view.Pad(word, 12), fmt.Sprintf("%s on %s: %s", p.Pods[i].Pod, p.Pods[i].Node, d.text()), 0))
			}
		}
	}
	if more > 0 {
		b.WriteString(terms.Paragraph(view.Pad(word, 12), fmt.Sprintf("and %d more, see -o wide", more), 0))
	}
	return b.String()
}

func (d *PlannedDirection) text() string {
	limit := view.Rate(float64(d.Rate))
	carries := fmt.Sprintf("%s carries %s, %.0f %% of its limit of %s", d.Direction, view.Rate(d.SentBitsPerSecond), 100*d.Share(), limit)
	since := fmt.Sprintf("since it was attached, %s of its bytes would have been dropped and %s would have waited",
		percent(d.WouldDropShare), percent(d.WouldWaitShare))
	if d.Effect == DidExceed {
		return carries + "; " + since
	}
	return fmt.Sprintf("%s; %s would be dropped and %s would wait; %s", carries, view.Rate(d.WouldDropBitsPerSecond), view.Rate(d.WouldWaitBitsPerSecond), since)
}

// percent is a share that is not 0 % if it is not 0.
func percent(share float64) string {
	switch {
	case share == 0:
		return "none"
	case share < 0.001:
		return "less than 0.1 %"
	default:
		return fmt.Sprintf("%.1f %%", 100*share)
	}
}

// table lists the pods that would be limited, or says where they are listed.
func (p *Plan) table(all bool) string {
	if len(p.Pods) == 0 {
		return ""
	}
	if len(p.Pods) > view.MaxListed && !all {
		return terms.Paragraph("", fmt.Sprintf("List the %d pods and their limits with -o wide.", len(p.Pods)), 0)
	}
	pods := make([]view.Pod, len(p.Pods))
	for i := range p.Pods {
		pods[i] = view.Pod{Pod: p.Pods[i].Pod, Node: p.Pods[i].Node}
		for j := range p.Pods[i].Directions {
			limit := view.Limit{Limit: p.Pods[i].Directions[j].Limit}
			limit.Enforce = terms.Name(terms.EnforceLimit) // as it would be
			pods[i].Limits = append(pods[i].Limits, limit)
		}
	}
	return "\n" + view.Table(pods) + "\n"
}

// notTaken are the pods by what of their annotations is not accepted, bounded or left to
// others.
func (p *Plan) notTaken() *groups {
	g := &groups{}
	for i := range p.Pods {
		for _, note := range p.Pods[i].Notes {
			g.add(note, p.Pods[i].Pod+" on "+p.Pods[i].Node)
		}
	}
	return g
}

// unlimited are the pods without a limit, by the cause: those whose limits are left to
// another shaper, and those whose nobody enforces.
func (p *Plan) unlimited() (left, nobody *groups) {
	left, nobody = &groups{}, &groups{}
	for i := range p.Unlimited {
		u := &p.Unlimited[i]
		g := nobody
		if u.LeftToOthers {
			g = left
		}
		g.add(u.Cause, u.Pod+" on "+u.Node)
	}
	return left, nobody
}
