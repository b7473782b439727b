// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package cluster puts together what the agents of all nodes answer, and writes it for
// people. It takes answers and returns text: it knows neither the API server nor the
// network. A node that did not answer is unknown, never fine.
package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// Schema is the version of [Answer] as JSON. It is raised when a field changes its
// meaning; new fields may come without that.
const Schema = 1

// Audience is what a token has to be made for that an agent accepts: it is good for
// nothing else, should anyone get hold of it.
const Audience = "podweir"

// Answer is what an agent tells of its node.
type Answer struct {
	Schema int `json:"schema"`
	// Node is the name of the node in Kubernetes, Version the agent's.
	Node    string `json:"node"`
	Version string `json:"version"`
	// NotReady are the parts of the agent that do not work, and why.
	NotReady []string `json:"notReady,omitempty"`
	// Status is the state of the node's pods, nil if it could not be read: then Error
	// says why.
	Status *view.Status `json:"status,omitempty"`
	Error  string       `json:"error,omitempty"`
	// Unlimited are the pods of the node that podweir has no limit for, nil if Status is.
	Unlimited *Unlimited `json:"unlimited,omitempty"`
	// Doctor is what the doctor found at DoctorTime, nil if it has not looked yet.
	Doctor     *doctor.Report `json:"doctor,omitempty"`
	DoctorTime time.Time      `json:"doctorTime,omitzero"`
}

// Unlimited are pods that podweir has no limit for.
type Unlimited struct {
	// None is how many request no limit, by namespace.
	None map[string]int `json:"none,omitempty"`
	// Pods request one.
	Pods []UnlimitedPod `json:"pods,omitempty"`
}

// UnlimitedPod is one of them.
type UnlimitedPod struct {
	Pod string `json:"pod"`
	// LeftToOthers says that its limits are left to another shaper.
	LeftToOthers bool `json:"leftToOthers,omitempty"`
	// Cause says why podweir has none for it.
	Cause string `json:"cause"`
}

// Node is a node, with the answer of its agent or why there is none.
type Node struct {
	Name   string  `json:"node"`
	Answer *Answer `json:"answer,omitempty"`
	// Error says why nothing is known of the node, "" if its agent answered.
	Error string `json:"error,omitempty"`
}

// Nodes are all nodes that were asked.
type Nodes struct {
	Schema int    `json:"schema"`
	Nodes  []Node `json:"nodes"`
	// Missing is how many nodes should have an agent and have none.
	Missing int `json:"missing,omitempty"`
	// Agents is a command that lists the agents' pods.
	Agents string `json:"-"`
}

// New makes a list of nodes, in the order of their names. Where two agents are on a node,
// as while one takes over from another, the one that knows more is heard. Missing is as
// in [Nodes].
func New(all []Node, missing int) *Nodes {
	worth := func(n *Node) int {
		switch {
		case n.Answer == nil:
			return 0
		case n.Answer.Status == nil:
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(all, func(a, b Node) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), worth(&b)-worth(&a))
	})
	all = slices.CompactFunc(all, func(a, b Node) bool { return a.Name == b.Name })
	return &Nodes{Schema: Schema, Nodes: all, Missing: missing}
}

// Total is how many nodes there should be answers of.
func (c *Nodes) Total() int { return len(c.Nodes) + c.Missing }

// groups are names of nodes by what they have in common, in the order in which it was
// seen.
type groups struct {
	reasons []string
	names   map[string][]string
	count   int
}

func (g *groups) add(reason, name string) {
	if g.names == nil {
		g.names = make(map[string][]string)
	}
	if g.names[reason] == nil {
		g.reasons = append(g.reasons, reason)
	}
	g.names[reason] = append(g.names[reason], name)
	g.count++
}

// group sorts nodes by a reason; a node without one is left out.
func (c *Nodes) group(reason func(*Node) string) *groups {
	g := &groups{}
	for i := range c.Nodes {
		if why := reason(&c.Nodes[i]); why != "" {
			g.add(why, c.Nodes[i].Name)
		}
	}
	return g
}

// text is a paragraph for each reason, under a word of at most 12 columns. What is named
// is a node or a pod.
func (g *groups) text(word, what string) string {
	var b strings.Builder
	for _, reason := range g.reasons {
		names := g.names[reason]
		b.WriteString(terms.Paragraph(view.Pad(word, 12), fmt.Sprintf("%s: %s", count(len(names), what), view.Names(names)), 0))
		b.WriteString(terms.Paragraph("  cause  ", reason, 6))
	}
	return b.String()
}

// told is a text for each reason, with the nodes.
func (g *groups) told() (texts []string) {
	for _, reason := range g.reasons {
		texts = append(texts, "on "+view.Names(g.names[reason])+": "+reason)
	}
	return texts
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
