// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// noPods says why nothing is known of a node's pods, "" if something is.
func noPods(n *Node) string {
	switch {
	case n.Answer == nil:
		return n.Error
	case n.Answer.Status == nil:
		return n.Answer.Error
	default:
		return ""
	}
}

// Pods are the pods of all nodes that answered, the worst first. Now is the reader's time.
func (c *Nodes) Pods(now time.Time) *view.Status {
	all := &view.Status{Schema: view.Schema, Time: now, Pods: []view.Pod{}}
	var unread, missing groups
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if noPods(n) != "" {
			continue
		}
		for _, p := range n.Answer.Status.Pods {
			p.Node = n.Name
			all.Pods = append(all.Pods, p)
		}
		for _, g := range n.Answer.Status.Groups {
			g.Node = n.Name
			all.Groups = append(all.Groups, g)
		}
		for _, what := range n.Answer.Status.Unread {
			unread.add(what, n.Name)
		}
		for _, what := range n.Answer.Status.Missing {
			missing.add(what, n.Name)
		}
	}
	all.Unread, all.Missing = unread.told(), missing.told()
	all.Sort()
	return all
}

// Status is the state of all pods on one screen: which nodes are unknown, which pods are
// not limited as they should be, which agents are not ready or of another release than most,
// and the rest counted.
func (c *Nodes) Status(now time.Time, onlyBroken bool) string {
	var b strings.Builder
	where := "the cluster"
	if unknown := c.group(noPods); unknown.count+c.Missing > 0 {
		where = "the nodes that answered"
		b.WriteString(c.unknownText(unknown))
	}
	b.WriteString(c.Pods(now).Summary(where, onlyBroken))
	b.WriteString(c.notReady().text("NOT READY", "node"))
	b.WriteString(c.versions())
	return b.String()
}

// Wide is the same with a line for each pod, or for each that is not as it should be.
func (c *Nodes) Wide(now time.Time, onlyBroken bool) string {
	pods := c.Pods(now)
	var b strings.Builder
	b.WriteString(c.Status(now, true))
	b.WriteString("\n")
	row := func(pod, node, state, egress, ingress, policy string) {
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(fmt.Sprintf("%-40s  %-20s  %-11s  %-13s  %-13s  %s", pod, node, state, egress, ingress, policy), " "))
	}
	row("POD", "NODE", "STATE", "EGRESS", "INGRESS", "POLICY, QUEUE")
	for i := range pods.Pods {
		p := &pods.Pods[i]
		if onlyBroken && p.State.AsWanted() {
			continue
		}
		var how []string
		for _, l := range p.Limits {
			text := l.Policy.String() + " " + l.Queue.String()
			if l.Held() {
				text += fmt.Sprintf(" (%s at its limit for %.0f %% of the last minute)", l.Direction, 100**l.HeldShare)
			}
			how = append(how, text)
		}
		row(terms.Printable(p.Pod), p.Node, string(p.State), p.Limit(terms.Egress), p.Limit(terms.Ingress), strings.Join(how, ", "))
	}
	return b.String()
}

// unknownText is about the nodes of which something is unknown.
func (c *Nodes) unknownText(unknown *groups) string {
	n := unknown.count + c.Missing
	verb := "are"
	if n == 1 {
		verb = "is"
	}
	text := fmt.Sprintf("%d of %s answered; %d %s unknown:\n", c.Total()-n, count(c.Total(), "node"), n, verb)
	text += unknown.text("UNKNOWN", "node")
	if c.Missing > 0 {
		text += terms.Paragraph(view.Pad("UNKNOWN", 12), count(c.Missing, "node")+" without an agent's pod, though the DaemonSet wants one there", 0)
	}
	return text
}

// notReady are the nodes whose agent does not work in all its parts, by what fails.
func (c *Nodes) notReady() *groups {
	return c.group(func(n *Node) string {
		if n.Answer == nil || n.Answer.Status == nil {
			return ""
		}
		return strings.Join(n.Answer.NotReady, "; ")
	})
}

// The exit statuses of the commands.
const (
	ExitOK      = 0
	ExitBroken  = 1
	ExitUnknown = 2
)

// StatusExit is the exit status for the state of all pods and why it is not 0: 1 if a pod
// is not limited as it should be or an agent is not ready, else 2 if a node, or something of
// its pods, is unknown.
func (c *Nodes) StatusExit() (status int, why string) {
	pods := c.Pods(time.Time{})
	var parts []string
	if n := len(pods.Broken()); n > 0 {
		status = ExitBroken
		parts = append(parts, fmt.Sprintf("%d of %d pods are not limited as they should be", n, len(pods.Pods)))
	}
	if n := c.notReady().count; n > 0 {
		status = ExitBroken
		parts = append(parts, fmt.Sprintf("%d of %d agents are not ready", n, c.Total()))
	}
	if unknown, why := c.UnknownExit(); unknown != ExitOK {
		status = cmp.Or(status, unknown)
		parts = append(parts, why)
	}
	if doubts := pods.Doubts(); len(doubts) > 0 {
		status, parts = cmp.Or(status, ExitUnknown), append(parts, doubts[0])
	}
	return status, strings.Join(parts, "; ")
}

// Unknown is how many nodes there are of whose pods nothing is known.
func (c *Nodes) Unknown() int { return c.group(noPods).count + c.Missing }

// UnknownExit is the exit status and why it is not 0: 2 if a node is unknown.
func (c *Nodes) UnknownExit() (status int, why string) {
	if n := c.Unknown(); n > 0 {
		return ExitUnknown, fmt.Sprintf("%d of %d nodes are unknown", n, c.Total())
	}
	return ExitOK, ""
}

// get is the node of a name, nil if there is none.
func (c *Nodes) get(name string) *Node {
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i]
		}
	}
	return nil
}

// Find are the nodes that know a pod with a limit: while it goes from one to another there are two.
func (c *Nodes) Find(pod string) (nodes []string) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if noPods(n) == "" && slices.ContainsFunc(n.Answer.Status.Pods, func(p view.Pod) bool { return p.Pod == pod }) {
			nodes = append(nodes, n.Name)
		}
	}
	return nodes
}

// Unlimited is what a node knows of a pod that asks for a limit and has none of podweir's, nil if
// none knows it.
func (c *Nodes) Unlimited(pod string) *PlannedUnlimited {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Answer == nil || n.Answer.Unlimited == nil {
			continue
		}
		for _, u := range n.Answer.Unlimited.Pods {
			if u.Pod == pod {
				return &PlannedUnlimited{u, n.Name}
			}
		}
	}
	return nil
}

// Rates are what each direction of each pod carried between two looks, by the clocks of
// their nodes. A node that did not answer both times is one entry with the reason.
func Rates(before, now *Nodes) []view.PodRate {
	all := []view.PodRate{}
	for i := range now.Nodes {
		n := &now.Nodes[i]
		why := noPods(n)
		was := before.get(n.Name)
		if why == "" && (was == nil || noPods(was) != "") {
			why = "it answered once so far"
		}
		if why != "" {
			all = append(all, view.PodRate{
				Node: n.Name, Pod: "node " + n.Name, Error: why, HeavyFlows: []terms.Flow{}, FlowBitsPerSecond: []float64{},
			})
			continue
		}
		rates := view.Rates(was.Answer.Status, n.Answer.Status)
		for j := range rates {
			rates[j].Node = n.Name
		}
		all = append(all, rates...)
	}
	return all
}

// versions says which nodes have an agent of another release than most, "" if all have
// one. It is no fault by itself: an upgrade goes from node to node.
func (c *Nodes) versions() string {
	g := c.group(func(n *Node) string {
		if n.Answer == nil {
			return ""
		}
		return cmp.Or(n.Answer.Version, "an unknown version")
	})
	if len(g.reasons) < 2 {
		return ""
	}
	slices.SortFunc(g.reasons, func(a, b string) int {
		return cmp.Or(len(g.names[b])-len(g.names[a]), strings.Compare(a, b))
	})
	var parts []string
	for i, version := range g.reasons {
		part := count(len(g.names[version]), "agent") + " of " + version
		if i > 0 {
			part += " on " + view.Names(g.names[version])
		}
		parts = append(parts, part)
	}
	return terms.Paragraph(view.Pad("VERSIONS", 12), fmt.Sprintf("%d releases: %s", len(parts), strings.Join(parts, "; ")), 0) +
		terms.Paragraph("  cause  ", "an upgrade or a rollback is under way, or has stopped half-way", 0) +
		terms.Paragraph("  cure   ", c.Agents+" shows which pods are old; kubectl describe of one that stays says why", 0)
}
