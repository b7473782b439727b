// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/podweir/podweir/plugin/share"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// PlannedGroup is a limit that pods of a namespace would have together on a node. Some of them
// may have it already.
type PlannedGroup struct {
	Node      string                       `json:"node"`
	Namespace string                       `json:"namespace"`
	Direction terms.Named[terms.Direction] `json:"direction"`
	Limit     units.BitRate                `json:"limitBitsPerSecond"`
	// Sent is what all pods send now.
	Sent units.BitRate `json:"sentBitsPerSecond"`
	// Members are the interfaces of the pods, those that send most first.
	Members []PlannedMember `json:"members"`
}

// PlannedMember is an interface of a pod in a group.
type PlannedMember struct {
	Pod       string `json:"pod"`
	Interface string `json:"interface"`
	// Sent is what it sends now, and Share what it would have if all went on like that; 0 if it
	// would have its own limit alone, because of Outside.
	Sent    units.BitRate `json:"sentBitsPerSecond"`
	Share   units.BitRate `json:"shareBitsPerSecond"`
	Outside string        `json:"outside,omitempty"`

	most    units.BitRate
	waiting units.Bytes
}

// planGroups returns the groups of a node that have a pod whose limit is observed.
func planGroups(node string, pods []view.Pod, rates map[string][]view.PodRate, of func(pod string) bool) []PlannedGroup {
	type key struct {
		namespace string
		direction terms.Direction
	}
	groups, observed := map[key]*PlannedGroup{}, map[key]bool{}
	for i := range pods {
		pod := &pods[i]
		namespace, _, _ := strings.Cut(pod.Pod, "/")
		for j := range pod.Limits {
			l := &pod.Limits[j]
			if l.Group == 0 || !of(pod.Pod) {
				continue
			}
			k := key{namespace, l.Direction.Is}
			if groups[k] == nil {
				groups[k] = &PlannedGroup{Node: node, Namespace: namespace, Direction: l.Direction, Limit: l.Group, Members: []PlannedMember{}}
			}
			groups[k].Limit = min(groups[k].Limit, l.Group) // of different ones the lowest holds
			observed[k] = observed[k] || l.Observed()
			d := planned(node, pod.Pod, l, rates[node+" "+pod.Pod])
			m := PlannedMember{
				Pod: pod.Pod, Interface: d.Interface, Sent: units.BitRate(d.SentBitsPerSecond), Outside: d.NoShare,
				most: d.Rate,
			}
			if !d.Observed() {
				m.waiting = units.Bytes(d.WaitingBytes)
			}
			groups[k].Sent += m.Sent
			groups[k].Members = append(groups[k].Members, m)
		}
	}
	var out []PlannedGroup
	for k, g := range groups {
		if observed[k] {
			g.divide()
			out = append(out, *g)
		}
	}
	slices.SortFunc(out, func(a, b PlannedGroup) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Direction.Is, b.Direction.Is))
	})
	return out
}

// divide sets the shares, by what the agent divides by.
func (g *PlannedGroup) divide() {
	members := make([]*share.Member, len(g.Members))
	for i, m := range g.Members {
		members[i] = &share.Member{Most: m.most.ByteRate(), Outside: m.Outside != ""}
		members[i].Saw(0, m.waiting)
	}
	share.Would(g.Limit, members, func(i int) units.ByteRate { return g.Members[i].Sent.ByteRate() })
	for i, m := range members {
		g.Members[i].Share = m.Share.BitRate()
	}
	slices.SortStableFunc(g.Members, func(a, b PlannedMember) int {
		return cmp.Or(cmp.Compare(b.Sent, a.Sent), strings.Compare(a.Pod, b.Pod))
	})
}

// text says what the limit would do; all tells of every pod.
func (g *PlannedGroup) text(all bool) string {
	told := []string{fmt.Sprintf("%s of namespace %s on %s: its pods would have %s together, and send %s now",
		g.Direction, terms.Printable(g.Namespace), g.Node, view.Rate(float64(g.Limit)), view.Rate(float64(g.Sent)))}
	for i := range g.Members {
		m := &g.Members[i]
		would := view.Rate(float64(m.Share))
		switch {
		case m.Outside != "":
			would = "no share, because " + m.Outside
		case m.Share >= m.Sent && !all: // nothing would change for it
			continue
		}
		told = append(told, fmt.Sprintf("%s would have %s, and sends %s", terms.Printable(m.Pod), would, view.Rate(float64(m.Sent))))
	}
	if more := len(told) - 1 - maxPlanned; more > 0 && !all {
		told = append(told[:maxPlanned+1], fmt.Sprintf("and %d more, see -o wide", more))
	}
	return strings.Join(told, "; ")
}
