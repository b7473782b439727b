// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package view is what people are shown of the limits of pods, and the text of it. It
// takes data and returns text: it knows neither kernel nor files nor terminals, so
// that a node, a cluster and a test show the same.
package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/terms"
)

// Schema is the version of [Status] as JSON. It is raised when a field changes its
// meaning; new fields may come without that.
const Schema = 1

// Status is what a node knows of the limits of its pods.
type Status struct {
	Schema int `json:"schema"`
	// Time is when it was looked at.
	Time time.Time `json:"time,omitzero"`
	Pods []Pod     `json:"pods"`
	// Groups are the limits that the pods of a namespace have together on the node.
	Groups []terms.Group `json:"groups,omitempty"`
	// Rates are what the pods carry, where it was read twice.
	Rates []PodRate `json:"-"`
	// Others are the devices of pods without a limit, where they were looked for.
	Others []Other `json:"-"`
	// Losses are where others than podweir lost packets of the node, where it was looked for.
	Losses []terms.Loss `json:"-"`
	// AgentLooked is when the agent looked at the limits last, zero if none runs.
	AgentLooked time.Time `json:"agentLooked,omitzero"`
	// NotReady are the parts of the agent that do not work, and why, where it was asked.
	NotReady []string `json:"-"`
	// Unread says what is not known because a file of podweir's is damaged.
	Unread []string `json:"unread,omitempty"`
	// Missing are which pods without their limit may be missing, and why.
	Missing []string `json:"missing,omitempty"`
	// Losing says what was lost between two looks.
	Losing []string `json:"-"`

	// Run is how podweir is run where it is read; see [Status.Runnable].
	Run string `json:"-"`
}

// Losing says what was lost between two looks, a text for each place, the worst first.
func Losing(before, now []terms.Loss) (texts []string) {
	was := make(map[string]uint64)
	for _, l := range before {
		was[l.Where] = l.Packets
	}
	more := func(l terms.Loss) int64 { return int64(l.Packets - was[l.Where]) }
	for _, l := range slices.SortedStableFunc(slices.Values(now), func(a, b terms.Loss) int { return cmp.Compare(more(b), more(a)) }) {
		if more(l) > 0 {
			texts = append(texts, fmt.Sprintf("%s: %d packets just now, %d in all", l.Where, more(l), l.Packets))
		}
	}
	return texts
}

// Other is a device of a pod that podweir has no limit on, or a pod that should have one
// and has no device that was found.
type Other struct {
	terms.Device
	// Pod is namespace/name, "" if the runtime did not tell.
	Pod string `json:"pod,omitempty"`
	// Asks are the annotations by which the pod asks for a limit that it has not, Misspelt
	// those that look as if they should, with what may be meant. LeftTo is whose limit it has
	// instead, such as Calico, "" for nobody's.
	Asks     []terms.Ask `json:"asks,omitempty"`
	Misspelt []string    `json:"misspelt,omitempty"`
	LeftTo   string      `json:"leftTo,omitempty"`
	// Lacks says that the pod is not limited as it should be.
	Lacks bool `json:"-"`
	// EgressBitsPerSecond and IngressBitsPerSecond are known where it was read twice.
	EgressBitsPerSecond  float64 `json:"-"`
	IngressBitsPerSecond float64 `json:"-"`
}

// Title is the pod, or the device if that is not known.
func (o *Other) Title() string { return cmp.Or(o.Pod, o.Name) }

// asked is what a pod asks for in a direction, in its own words, "-" for nothing.
func (o *Other) asked(d terms.Direction) string {
	value := "-"
	for _, a := range o.Asks { // podweir's own annotation is the last, and counts
		if a.Direction == d {
			value = a.Value
		}
	}
	return value
}

// State says whether a pod has its limits.
type State string

// The states, the worst first.
const (
	// NotLimited: a limit is missing.
	NotLimited State = "not-limited"
	// Exceeded: the pod carried more than its limit.
	Exceeded State = "exceeded"
	// Differs: what is attached is not what should be.
	Differs State = "differs"
	// Unknown: it could not be found out.
	Unknown State = "unknown"
	// Tampered: another party takes the limit away again and again, and it holds all the same.
	Tampered State = "tampered"
	// Observed: its limits are measured and not enforced, as the operator wants it.
	Observed State = "observed"
	// HostNetwork: it asks for a limit, and a pod with hostNetwork has none.
	HostNetwork State = "hostNetwork"
	// Limited: all is as it should be.
	Limited State = "limited"
)

var states = []State{NotLimited, Exceeded, Differs, Unknown, Tampered, Observed, HostNetwork, Limited}

// AsWanted says that a pod of this state needs no cure of the node.
func (s State) AsWanted() bool { return s == Limited || s == Observed || s == HostNetwork }

// Worse compares states: below 0 if s is worse than o.
func (s State) Worse(o State) int { return slices.Index(states, s) - slices.Index(states, o) }

// Pod is one pod with a limit.
type Pod struct {
	// Node is set where there are several.
	Node string `json:"node,omitempty"`
	// Pod is namespace/name, or network/containerID if the name is not known.
	Pod    string  `json:"pod"`
	State  State   `json:"state"`
	Limits []Limit `json:"limits,omitempty"`
	// Cause and Cure are of a state other than limited: why it is so, and what to do.
	Cause string `json:"cause,omitempty"`
	Cure  string `json:"cure,omitempty"`
	// Since is when that was seen first, zero if it is not known.
	Since time.Time `json:"since,omitzero"`
	// Notes say which values of the pod's annotations were not accepted and what is used
	// instead, and which limits are left to others.
	Notes []string `json:"notes,omitempty"`
}

// Limit is one direction of one interface.
type Limit struct {
	Interface string `json:"interface"`
	terms.Limit
	// Attached is when the interface got its limits, zero if that is not known.
	Attached time.Time `json:"attached,omitzero"`
	// Read is when the counters were read, zero for the time of the node.
	Read    time.Time `json:"-"`
	Passing []Passing `json:"-"`
	terms.Past
	terms.Reached
	Counters
	// Waits are how long packets waited, one for each band in which there were any; none
	// where nothing estimates it.
	Waits []Wait `json:"waits,omitempty"`
}

// Wait is how long the packets of a band waited since the pod was attached.
type Wait struct {
	// Band is light or heavy.
	Band string  `json:"band"`
	P50  float64 `json:"p50Seconds"`
	P99  float64 `json:"p99Seconds"`
}

// String is for people.
func (w Wait) String() string {
	return fmt.Sprintf("%s p50 %s, p99 %s", w.Band, Milliseconds(w.P50), Milliseconds(w.P99))
}

// Add adds what was found out about a pod to the others. The worst state of a pod
// counts; other causes are told behind its own.
func (n *Status) Add(p *Pod) {
	at := slices.IndexFunc(n.Pods, func(o Pod) bool { return o.Pod == p.Pod && o.Node == p.Node })
	if at < 0 {
		n.Pods = append(n.Pods, *p)
		return
	}
	have := &n.Pods[at]
	have.Limits = append(have.Limits, p.Limits...)
	for _, note := range p.Notes { // of two interfaces they are the same
		if !slices.Contains(have.Notes, note) {
			have.Notes = append(slices.Clip(have.Notes), note)
		}
	}
	switch {
	case p.State == have.State && p.Cause == have.Cause:
	case p.State == Limited && have.State == Observed: // of another interface
		have.State = p.State
	case p.State.AsWanted() && (!have.State.AsWanted() || p.State != HostNetwork):
	case have.State.AsWanted():
		have.State, have.Cause, have.Cure, have.Since = p.State, p.Cause, p.Cure, p.Since
	case p.State.Worse(have.State) < 0:
		have.Cause, have.Cure = p.Cause+"; also "+string(have.State)+": "+have.Cause, p.Cure
		have.State, have.Since = p.State, p.Since
	default:
		have.Cause += "; also " + string(p.State) + ": " + p.Cause
	}
}

// Sort puts the worst pods first, those of one state by name.
func (n *Status) Sort() {
	slices.SortFunc(n.Pods, func(a, b Pod) int {
		return cmp.Or(a.State.Worse(b.State), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Node, b.Node))
	})
}

// Broken are the pods that are not limited as they should be.
func (n *Status) Broken() []Pod {
	var broken []Pod
	for i := range n.Pods {
		if !n.Pods[i].State.AsWanted() {
			broken = append(broken, n.Pods[i])
		}
	}
	return broken
}

func (n *Status) of(s State) (names []string) {
	for i := range n.Pods {
		if n.Pods[i].State == s {
			names = append(names, n.Pods[i].label())
		}
	}
	return names
}

// Keep leaves only the pods of which keep says yes.
func (n *Status) Keep(keep func(*Pod) bool) {
	n.Pods = slices.DeleteFunc(n.Pods, func(p Pod) bool { return !keep(&p) })
	n.Others = slices.DeleteFunc(n.Others, func(o Other) bool { return !keep(&Pod{Pod: o.Title()}) })
	n.Rates = slices.DeleteFunc(n.Rates, func(r PodRate) bool {
		return !slices.ContainsFunc(n.Pods, func(p Pod) bool { return p.Pod == r.Pod && p.Node == r.Node })
	})
}

// less is how many pods have a limit that is below what they ask for.
func (n *Status) less() int {
	count := 0
	for i := range n.Pods {
		if slices.ContainsFunc(n.Pods[i].Limits, func(l Limit) bool { return l.Asked > l.Rate }) {
			count++
		}
	}
	return count
}

// Runnable has the texts of the pods name podweir's commands as they are run where they are
// read; see [terms.Runnable]. It returns the node.
func (n *Status) Runnable(run string) *Status {
	n.Run = cmp.Or(run, terms.OnPath)
	for i := range n.Pods {
		p := &n.Pods[i]
		p.Cause, p.Cure = terms.Runnable(p.Cause, run), terms.Runnable(p.Cure, run)
	}
	return n
}
