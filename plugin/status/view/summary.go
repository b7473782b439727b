// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// MaxListed is up to how many pods the summary lists also those that are as they
// should be. It counts more of them.
const MaxListed = 10

// causeLines is how much of a cause the summary shows: five of them fit a screen of 24
// lines, and fewer have more room. All of it is in the wide form.
const causeLines = 2

var words = map[State]string{
	NotLimited: "NOT LIMITED", Exceeded: "EXCEEDED", Differs: "DIFFERS", Unknown: "UNKNOWN", Tampered: "TAMPERED",
	Observed: "observed", HostNetwork: "hostNetwork", Limited: "limited",
}

// Word is the state as people are shown it.
func (s State) Word() string { return words[s] }

// Headline is one sentence about all pods of a node or of a cluster.
func Headline(pods, broken int, where string) string {
	switch {
	case pods == 0:
		return "No pod of " + where + " has a bandwidth limit from podweir."
	case broken == 0 && pods == 1:
		return "The only pod with a limit is limited as it should be."
	case broken == 0:
		return fmt.Sprintf("All %d pods with a limit are limited as they should be.", pods)
	}
	verb := "are"
	if broken == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %d pods are limited as they should be; %d %s not:", pods-broken, pods, broken, verb)
}

// Less says how many pods have a limit below what they ask for, "" if none has.
func (n *Status) Less() string {
	switch less := n.less(); less {
	case 0:
		return ""
	case 1:
		return "1 pod has a lower limit than it asks for.\n"
	default:
		return fmt.Sprintf("%d pods have lower limits than they ask for.\n", less)
	}
}

// Head is [Headline] of the pods that are to be limited, and a sentence each about those that are
// observed only, and those that no limit can be for.
func (n *Status) Head(where string) string {
	var text string
	observed, host := len(n.of(Observed)), n.of(HostNetwork)
	switch {
	case observed == 1:
		text = "1 pod is observed only: what exceeds its limits is counted, and nothing is held.\n"
	case observed > 1:
		text = fmt.Sprintf("%d pods are observed only: what exceeds their limits is counted, and nothing is held.\n", observed)
	}
	if rest := len(n.Pods) - observed - len(host); rest > 0 || text == "" {
		text += Headline(rest, len(n.Broken()), where) + "\n"
	}
	if len(host) > 0 {
		text += terms.Paragraph("", "Asks for a limit and has none, as every pod with hostNetwork: "+few(host, ", ")+". The annotation does nothing there.", 0)
	}
	return strings.TrimSuffix(text, "\n")
}

// agentLooks is how often an agent looks at the limits, at least, on a busy node.
const agentLooks = 5 * time.Second

// age says that what the agent knew is old; "" if it is not, or no agent tells.
func (n *Status) age() string {
	age := n.Time.Sub(n.AgentLooked)
	if n.AgentLooked.IsZero() || age.Abs() < agentLooks {
		return ""
	}
	return fmt.Sprintf("The agent looked %d s ago, and looks every 2 s: it may have ended. How long limits were reached, whether they hold and what namespaces send is of then.", int(age.Seconds()))
}

// Doubts are sentences about what is not known of the pods, or not done for those that come, and why.
func (n *Status) Doubts() (sentences []string) {
	if len(n.NotReady) > 0 {
		sentences = append(sentences, "The agent is not ready: "+strings.Join(n.NotReady, "; ")+".")
	}
	for _, what := range n.Unread {
		sentences = append(sentences, strings.ToUpper(what[:1])+what[1:]+". Remove that file: an agent writes it again.")
	}
	for _, what := range n.Missing {
		sentences = append(sentences, "Pods without their limit may be missing from this list: "+what+".")
	}
	return sentences
}

// Summary is the state of a node, or of where else the pods are, on one screen: each pod
// that is not limited as it should be with cause and cure, and the others counted.
func (n *Status) Summary(where string, onlyBroken bool) string {
	var b strings.Builder
	broken := n.Broken()
	b.WriteString(n.Head(where) + "\n")
	b.WriteString(problems(broken, n.Time))
	for _, sentence := range n.Doubts() {
		b.WriteString(terms.Paragraph("", sentence, 0))
	}
	b.WriteString(terms.Paragraph("", n.age(), 0))
	b.WriteString(n.Less())
	if onlyBroken {
		return b.String()
	}
	var rest []Pod
	for i := range n.Pods {
		if s := n.Pods[i].State; s.AsWanted() && s != HostNetwork { // its name is above
			rest = append(rest, n.Pods[i])
		}
	}
	switch {
	case n.Rates != nil:
		b.WriteString(n.lines(len(n.Pods)+len(n.Others) > MaxListed))
		if k := len(n.Others); len(n.Pods)+k > MaxListed && k > 0 {
			fmt.Fprintf(&b, "%d devices of pods have no limit.\n", k)
		}
		if len(n.Pods) > MaxListed && len(rest) > 0 {
			b.WriteString(terms.Paragraph("", counted(rest), 0))
		}
	case len(rest) == 0:
	case len(rest) <= MaxListed:
		b.WriteString("\n" + Table(rest))
	default:
		b.WriteString(terms.Paragraph("", counted(rest), 0))
	}
	b.WriteString(n.groups())
	b.WriteString(Decided(n.Pods))
	b.WriteString(terms.Paragraph("", went(n.Pods), 0))
	b.WriteString(terms.Paragraph("", n.next(), 0))
	b.WriteString(terms.Paragraph("", rough(rest), 0))
	b.WriteString(terms.Paragraph("", unsure(rest), 0))
	return b.String()
}

// problems is a paragraph for each pod; pods with the same cause and cure share one.
func problems(broken []Pod, now time.Time) string {
	type key struct {
		state       State
		cause, cure string
	}
	var order []key
	groups := map[key][]*Pod{}
	for i := range broken {
		p := &broken[i]
		k := key{p.State, p.Cause, p.Cure}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], p)
	}
	var b strings.Builder
	for _, k := range order {
		var names []string
		for _, p := range groups[k] {
			names = append(names, p.label())
		}
		head := Names(names)
		if len(names) == 1 {
			if at := since(groups[k][0].Since, now); at != "" {
				head += " " + at
			}
		} else {
			head = fmt.Sprintf("%d pods: %s", len(names), head)
		}
		b.WriteString(terms.Paragraph(Pad(words[k.state], 12), head, 0))
		b.WriteString(terms.Paragraph("  cause  ", k.cause, max(causeLines, 12/len(order))))
		b.WriteString(terms.Paragraph("  cure   ", k.cure, causeLines+1)) // a command is not cut
	}
	return b.String()
}

// label is the pod with its node, where there are several.
func (p *Pod) label() string {
	if p.Node == "" {
		return p.Pod
	}
	return p.Pod + " on " + p.Node
}

// Names lists up to 50 names in one line, and counts more of them.
func Names(names []string) string { return first(50, names, ", ") }

// few lists up to three facts, and counts more of them.
func few(facts []string, separator string) string { return first(3, facts, separator) }

func first(most int, all []string, separator string) string {
	if n := len(all) - most; n > 0 {
		return strings.Join(all[:most], separator) + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(all, separator)
}

// Table is a line for each pod, with its node where there are several.
func Table(pods []Pod) string {
	var b strings.Builder
	var names []string
	for i := range pods {
		names = append(names, terms.Printable(pods[i].Pod))
	}
	all, some := apart(names, 40), apart(names, 26)
	name := func(pod, _ string) string { return all(pod) }
	if slices.ContainsFunc(pods, func(p Pod) bool { return p.Node != "" }) {
		name = func(pod, node string) string { return some(pod) + "  " + Pad(node, 12) }
	}
	row := func(pod, node, egress, ingress, policy string) {
		b.WriteString(strings.TrimRight(name(pod, node)+"  "+Pad(egress, limitWidth)+"  "+Pad(ingress, limitWidth)+"  "+Pad(policy, 8), " ") + "\n")
	}
	row("POD", "NODE", "EGRESS", "INGRESS", "POLICY")
	for i := range pods {
		p := &pods[i]
		policies := map[string]bool{}
		for _, l := range p.Limits {
			if l.Observed() {
				policies[string(Observed)] = true
			} else {
				policies[l.Policy.String()] = true
			}
		}
		row(terms.Printable(p.Pod), p.Node, p.Limit(terms.Egress), p.Limit(terms.Ingress), strings.Join(slices.Sorted(maps.Keys(policies)), ","))
	}
	return b.String()
}

// limitWidth of a column with a limit.
const limitWidth = 13

// Limit is the limits of a direction in words: how many interfaces have each, if several
// do.
func (p *Pod) Limit(direction terms.Direction) string {
	var rates []units.BitRate
	count := map[units.BitRate]int{}
	for _, l := range p.Limits {
		if l.Direction.Is != direction {
			continue
		}
		if count[l.Rate]++; count[l.Rate] == 1 {
			rates = append(rates, l.Rate)
		}
	}
	if len(rates) == 0 {
		return "-"
	}
	text := limits(rates, count, Rate)
	if utf8.RuneCountInString(text) > limitWidth {
		text = limits(rates, count, Short)
	}
	return text
}

func limits(rates []units.BitRate, count map[units.BitRate]int, format func(float64) string) string {
	var all []string
	for _, rate := range rates {
		text := format(float64(rate))
		if n := count[rate]; n > 1 {
			text = fmt.Sprintf("%d × %s", n, text)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func counted(pods []Pod) string {
	directions, queues := map[terms.Direction]int{}, map[string]int{}
	for i := range pods {
		for _, l := range pods[i].Limits {
			directions[l.Direction.Is]++
			queue := "by " + l.Queue.String()
			switch {
			case l.Observed():
				queue = "observed only"
			case l.Queue.Is == terms.QueueNone:
				queue = "by policing, without a queue"
			}
			queues[queue]++
		}
	}
	return fmt.Sprintf("%d pods as they should be: limits %s (%s). List them with -o wide.", len(pods), list(directions), list(queues))
}

func list[K cmp.Ordered](m map[K]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %v", m[what], what))
	}
	return strings.Join(parts, ", ")
}

// rough names limits that a second may exceed.
func rough(pods []Pod) string {
	return some(pods, "Limits that a single second may exceed, as -o wide explains: ", ", ", ".", func(l *Limit) (string, bool) {
		return "", !l.CapHolds && !l.Observed() && l.Ahead == ""
	})
}

// unsure names limits ahead of which a program of others may take packets.
func unsure(pods []Pod) string {
	return some(pods, "Programs of others run before podweir's redirect, and packets that they take are not limited: ", "; ", ". None went past just now.",
		func(l *Limit) (string, bool) { return ": " + l.Ahead, l.Ahead != "" })
}
