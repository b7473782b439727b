// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import "github.com/podweir/podweir/plugin/status/view"

// Unknown is how many nodes there are of whose pods nothing is known.
func (c *Nodes) Unknown() int { return c.group(noPods).count + c.Missing }

// get is the node of a name, nil if there is none.
func (c *Nodes) get(name string) *Node {
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i]
		}
	}
	return nil
}

// Find is the node that has a limit for a pod, "" if none does.
func (c *Nodes) Find(pod string) string {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if noPods(n) != "" {
			continue
		}
		for j := range n.Answer.Status.Pods {
			if n.Answer.Status.Pods[j].Pod == pod {
				return n.Name
			}
		}
	}
	return ""
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
				Node: n.Name, Pod: "node " + n.Name, Error: why, HeavyFlows: []view.Flow{}, FlowBitsPerSecond: []float64{},
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
