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

// Explained is what the limits of a pod do to it.
type Explained struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// State, Cause, Cure and Since are those of [view.Pod].
	State view.State `json:"state"`
	Cause string     `json:"cause,omitempty"`
	Cure  string     `json:"cure,omitempty"`
	Since time.Time  `json:"since,omitzero"`
	// Directions are the limits of its interfaces.
	Directions []Direction `json:"directions,omitempty"`
	// Groups are the limits that it has together with other pods of its namespace.
	Groups []terms.Group `json:"groups,omitempty"`
}

// Direction is one limit with its verdict and the rates that it follows from.
type Direction struct {
	// Verdict is one sentence.
	Verdict string `json:"verdict"`
	view.PodRate
	terms.Reached
	// Counters are since the pod was attached.
	Counters view.Counters `json:"counters"`
	// Waits are how long packets waited since then.
	Waits []view.Wait `json:"waits,omitempty"`
}

// Explain says what the limits of a pod do to it, by two looks at its node.
func Explain(pod string, before, now *Nodes) *Explained {
	e := &Explained{Pod: pod, State: view.Unknown, Cause: "the pod was there at the first look and is not any more"}
	where := slices.Concat(now.Find(pod), before.Find(pod))
	if len(where) > 0 {
		e.Node = where[0]
	}
	n := now.get(e.Node)
	if len(now.Find(pod)) == 0 {
		if n != nil && noPods(n) != "" {
			e.Cause = noPods(n)
		}
		return e
	}
	seen := n.Answer.Status
	if was := before.get(e.Node); was != nil && noPods(was) == "" {
		seen.Looked(was.Answer.Status)
		seen.Runnable(cmp.Or(seen.Run, "kubectl podweir"))
	}
	at := slices.IndexFunc(seen.Pods, func(p view.Pod) bool { return p.Pod == pod })
	p := &seen.Pods[at]
	e.State, e.Cause, e.Cure, e.Since = p.State, p.Cause, p.Cure, p.Since
	for _, g := range seen.Groups {
		if namespace, _, _ := strings.Cut(pod, "/"); g.Namespace == namespace {
			g.Node = n.Name
			e.Groups = append(e.Groups, g)
		}
	}
	rates := Rates(before, now)
	for i := range p.Limits {
		l := &p.Limits[i]
		for _, r := range rates {
			if r.Pod == pod && r.Interface == l.Interface && r.Direction == l.Direction {
				d := Direction{PodRate: r, Reached: l.Reached, Counters: l.Counters, Waits: l.Waits}
				d.Verdict = d.verdict(seen.Time, view.ShareOf(pod, &r.Limit, e.Groups, e.Node))
				e.Directions = append(e.Directions, d)
			}
		}
	}
	return e
}

// Shares of a limit. At fullShare a direction is at its limit: a rate over two seconds is
// not exact to the last hundredth. Below idleShare it carries next to nothing.
const (
	fullShare = 0.95
	idleShare = 0.001
)

// verdict is one sentence; now is the time of the look by the node's clock, and share what [view.ShareOf]
// says.
func (d *Direction) verdict(now time.Time, share string) string {
	limit := view.Rate(float64(d.Rate))
	held := d.DropsPerSecond > 0 || d.WaitingBytes > 0
	if held && d.Limit.Share != 0 && d.Limit.Share < d.Rate && share != "" {
		return fmt.Sprintf("%s is held by its share: %s; it carries %s, %s packets/s were dropped and %d bytes wait; %s",
			d.Direction, share, view.Rate(d.SentBitsPerSecond), view.Short(d.DropsPerSecond), d.WaitingBytes, d.queued())
	}
	text := d.byLimit(now, limit, held)
	if share != "" {
		text += "; " + share
	}
	return text
}

// byLimit is the verdict by the pod's own limit.
func (d *Direction) byLimit(now time.Time, limit string, held bool) string {
	switch {
	case d.Blocked != "":
		return fmt.Sprintf("%s carries nothing: %s, which is not podweir", d.Direction, d.Blocked)
	case d.Observed():
		return fmt.Sprintf("%s is observed only: it carries %.0f %% of its limit of %s, and nothing is held to that", d.Direction, 100*d.Share(), limit)
	case d.Share() >= fullShare && !d.AtLimitSince.IsZero():
		return fmt.Sprintf("%s has been at its limit of %s since %s: %s; %s", d.Direction, limit, clock(d.AtLimitSince, now), d.users(), d.queued())
	case d.Share() >= fullShare:
		return fmt.Sprintf("%s is at its limit of %s: %s; %s", d.Direction, limit, d.users(), d.queued())
	case held:
		return fmt.Sprintf("%s carries %.0f %% of its limit of %s on average, and reaches it for moments: %s packets/s were dropped and %d bytes wait; %s",
			d.Direction, 100*d.Share(), limit, view.Short(d.DropsPerSecond), d.WaitingBytes, d.queued())
	case d.Share() < idleShare:
		return fmt.Sprintf("%s carries next to nothing of its limit of %s", d.Direction, limit)
	default:
		return fmt.Sprintf("%s carries %.0f %% of its limit of %s, drops nothing and nothing waits: the limit is not what slows it",
			d.Direction, 100*d.Share(), limit)
	}
}

// clock is a time for people: the hour, and before that the day unless it was within the
// last 24 hours.
func clock(at, now time.Time) string {
	layout := "15:04 MST"
	if now.Sub(at) >= 24*time.Hour {
		layout = "2006-01-02 15:04 MST"
	}
	return at.UTC().Format(layout)
}

// users says whose the traffic is.
func (d *Direction) users() string {
	largest := -1
	for i, bits := range d.FlowBitsPerSecond {
		if bits > 0 && (largest < 0 || bits > d.FlowBitsPerSecond[largest]) {
			largest = i
		}
	}
	if largest < 0 {
		return "no heavy flow was seen, so that light flows use it"
	}
	flow, bits := &d.HeavyFlows[largest], d.FlowBitsPerSecond[largest]
	part := d.Part(bits)
	who := fmt.Sprintf("the largest of %s, %s,", count(len(d.HeavyFlows), "heavy flow"), flow.Name())
	if part > 0.5 {
		who = "one flow, " + flow.Name() + ","
	}
	return fmt.Sprintf("%s offers %.0f %% of the traffic", who, 100*part)
}

// queued says who waits for whom.
func (d *Direction) queued() string {
	switch {
	case d.Queue.Is == terms.QueueNone:
		return "there is no queue, so that what exceeds the limit is dropped"
	case d.Policy.Is == terms.PolicyFlat:
		return "all flows wait in one queue"
	default:
		return fmt.Sprintf("light flows (%s) go before heavy ones", view.Rate(d.LightBitsPerSecond))
	}
}

// Text is the verdict and then the numbers.
func (e *Explained) Text(now time.Time) string {
	var b strings.Builder
	switch {
	case e.State == view.HostNetwork:
		b.WriteString(terms.Paragraph("", fmt.Sprintf("%s on %s has no limit: %s; %s.", e.Pod, e.Node, e.Cause, e.Cure), 0))
	case !e.State.AsWanted():
		one := &view.Status{Time: now, Pods: []view.Pod{{Node: e.Node, Pod: e.Pod, State: e.State, Cause: e.Cause, Cure: e.Cure, Since: e.Since}}}
		b.WriteString(one.Summary("the cluster", true))
	}
	for i := range e.Directions {
		b.WriteString(terms.Paragraph("", e.Directions[i].Verdict+".", 0))
	}
	limits := make([]view.Limit, len(e.Directions))
	for i := range e.Directions {
		limits[i].Limit = e.Directions[i].Limit
	}
	b.WriteString(view.Decided([]view.Pod{{Pod: e.Pod, Limits: limits}}))
	for i := range e.Groups {
		b.WriteString(terms.Paragraph("", view.GroupText(&e.Groups[i]), 0))
	}
	for i := range e.Directions {
		e.Directions[i].numbers(&b)
	}
	return b.String()
}

func (d *Direction) numbers(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s of %s on %s, limit %s, policy %s, queue %s\n", d.Direction, terms.Printable(d.Interface), d.Node,
		view.Rate(float64(d.Rate)), d.Policy, d.Queue)
	fmt.Fprintf(b, "  now      %s (%.0f %%) sent of %s offered\n", view.Rate(d.SentBitsPerSecond), 100*d.Share(), view.Rate(d.OfferedBitsPerSecond()))
	fmt.Fprintf(b, "  queued   light flows %s, heavy ones %s\n", view.Rate(d.LightBitsPerSecond), view.Rate(d.HeavyBitsPerSecond))
	if d.ExemptBitsPerSecond > 0 {
		fmt.Fprintf(b, "  exempt   %s of networks that the limit does not count\n", view.Rate(d.ExemptBitsPerSecond))
	}
	fmt.Fprintf(b, "  dropped  %s packets/s, %d since it was attached; %d bytes wait\n", view.Short(d.DropsPerSecond), d.Counters.Drops, d.WaitingBytes)
	if d.Held() {
		fmt.Fprintf(b, "  held     at the limit for %.0f %% of the last minute\n", 100**d.HeldShare)
	}
	for _, w := range d.Waits {
		fmt.Fprintf(b, "  waited   %s since it was attached\n", w)
	}
	for i := range d.HeavyFlows {
		fmt.Fprintf(b, "  flow     %s offers %s\n", view.Pad(d.HeavyFlows[i].Name(), 48), view.Rate(d.FlowBitsPerSecond[i]))
		for _, end := range view.Ends(&d.HeavyFlows[i], d.Pod) {
			fmt.Fprintf(b, "           %s\n", end)
		}
	}
}

// Exit is the exit status and why it is not 0: 1 if the pod is not limited as it should be,
// 2 if that is unknown.
func (e *Explained) Exit() (status int, why string) {
	switch {
	case e.State.AsWanted():
		return ExitOK, ""
	case e.State == view.Unknown:
		return ExitUnknown, "whether the pod is limited is unknown: " + e.Cause
	default:
		return ExitBroken, "the pod is not limited as it should be"
	}
}
