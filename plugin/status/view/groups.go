// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/terms"
)

// GroupText is a sentence about a limit that pods have together.
func GroupText(g *terms.Group) string {
	where := "this node"
	if g.Node != "" {
		where = g.Node
	}
	text := fmt.Sprintf("%s of namespace %s ", g.Direction, terms.Printable(g.Namespace))
	if g.AtLimitSince.IsZero() {
		text += fmt.Sprintf("has %s of its %s on %s, among %d pods", Rate(float64(g.Sent)), Rate(float64(g.Limit)), where, g.Pods)
	} else {
		text += fmt.Sprintf("is at its limit of %s on %s since %s, among %d pods", Rate(float64(g.Limit)), where, g.AtLimitSince.UTC().Format(time.RFC3339), g.Pods)
	}
	if g.Largest != "" {
		text += fmt.Sprintf("; %s has %.0f %% of it", terms.Printable(g.Largest), 100*g.LargestPart)
	}
	if len(g.Outside) > 0 {
		text += fmt.Sprintf("; outside of it, with their own limits alone: %s", few(g.Outside, ", "))
	}
	if coarse := terms.CoarseEach(g.Limit, g.Pods); coarse != "" {
		text += "; " + coarse
	}
	return text + "."
}

// ShareOf says what a direction of a pod has of the limit of its namespace, and who decides it; ""
// if its namespace has none. groups are those of the pod's node; where is what that node is called.
func ShareOf(pod string, l *terms.Limit, groups []terms.Group, where string) string {
	if l.Group == 0 {
		return ""
	}
	namespace, _, _ := strings.Cut(pod, "/")
	limit, has := l.Group, "no agent divides: it keeps "+Rate(float64(l.Share))
	for i := range groups {
		if g := &groups[i]; g.Namespace == namespace && g.Direction == l.Direction {
			limit, has = g.Limit, "the agent gives it "+Rate(float64(l.Share))+" now"
		}
	}
	of := fmt.Sprintf(" the %s that the pods of its namespace have together on %s", Rate(float64(limit)), where)
	switch {
	case l.Observed() && l.NoShare == "":
		return "observed only are" + of
	case l.Share == 0:
		return "it has no share of" + of + ": " + cmp.Or(l.NoShare, "its queue is not there yet")
	default:
		return has + " of" + of
	}
}

// groupRates are what pods carry that have a limit together, under the name namespace/*.
func groupRates(rates []PodRate) (groups []PodRate) {
	for i := range rates {
		r := &rates[i]
		if r.Group == 0 || r.Error != "" || r.Observed() {
			continue
		}
		namespace, _, _ := strings.Cut(r.Pod, "/")
		sum := PodRate{Node: r.Node, Pod: namespace + "/*", Interface: "eth0", Limit: terms.Limit{Direction: r.Direction, Rate: r.Group}}
		at := slices.IndexFunc(groups, func(g PodRate) bool { return g.key() == sum.key() })
		if at < 0 {
			at, groups = len(groups), append(groups, sum)
		}
		groups[at].SentBitsPerSecond += r.SentBitsPerSecond - r.ExemptBitsPerSecond
		groups[at].DropsPerSecond += r.DropsPerSecond
	}
	return groups
}

// groups has a paragraph for each limit that pods have together, and for those that nobody
// divides.
func (n *Status) groups() (text string) {
	for i := range n.Groups {
		text += terms.Paragraph("", GroupText(&n.Groups[i]), 0)
	}
	for _, g := range n.undivided(true) {
		text += terms.Paragraph("", g+" has a limit, and no agent divides it: each pod keeps the share that it had.", 0)
	}
	for _, g := range n.undivided(false) {
		text += terms.Paragraph("", g+" has a limit that pods have no share of, only their own limits: status -o wide says why.", 0)
	}
	return text
}

// undivided names the groups that nobody divides, as "egress of namespace batch": of pods that have a share, or of
// those that cannot have one.
func (n *Status) undivided(shares bool) (all []string) {
	for i := range n.Pods {
		p := &n.Pods[i]
		for j := range p.Limits {
			l := &p.Limits[j]
			namespace, _, _ := strings.Cut(p.Pod, "/")
			divided := slices.ContainsFunc(n.Groups, func(g terms.Group) bool {
				return g.Namespace == namespace && g.Direction == l.Direction && g.Node == p.Node
			})
			name := fmt.Sprintf("%s of namespace %s", l.Direction, terms.Printable(namespace))
			if l.Group != 0 && (l.NoShare == "") == shares && !l.Observed() && !divided && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}
