// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// What to do about a pod, by what is wrong with it.
const (
	cureUnshaped = "the agent tries again by itself; podweir doctor finds what prevents it"
	// cureAlone is cureUnshaped where no agent runs.
	cureAlone    = "no agent runs here that would try again: podweir doctor finds what prevents it; then recreate the pod"
	cureHost     = "take the annotation off: the pod uses the node's own interfaces"
	cureInvalid  = "correct what the cause names; an agent then sets the limit by itself; without an agent, recreate the pod"
	cureOverdue  = "podweir explain PW610"
	cureExceeded = "podweir explain PW612"
	cureDiffers  = "podweir repair; if it comes back: podweir explain PW602"
	cureNamesake = "recreate the pod, or take the limits off (podweir detach) and attach them again"
	cureBeside   = "take that device off the pod, and CAP_NET_ADMIN from a pod that made it; a second network with podweir in its chain has a limit, too"
	cureBypassed = "podweir explain PW402"
	// cureReadAhead is of a limit that the pod's runtime does not heed.
	cureReadAhead = "podweir explain PW117"
	cureStarved   = "podweir repair polices ahead of it (Linux 6.6); it has to go for the queue to be back: podweir explain PW506"
	cureUnseen    = "another mode in the network's configuration, and a new pod"
	cureGone      = "podweir gc"
	cureUnknown   = "podweir doctor"
	cureLost      = "start an agent, which takes it over, or recreate the pod; podweir gc would leave a running pod without a limit"
)

// CureLeft is the cure of an attachment of which it is not known whether its pod is gone.
func CureLeft(id attach.ID) string {
	return "if the pod has ended, or goes on without " + id.IfName + ", podweir detach --container " + id.ContainerID + " --ifname " + id.IfName + " removes the rest"
}

// Name is what people know the pod by: namespace/name, or network/containerID.
func (a *Attachment) Name() string { return podName(a.Pod, a.ID) }

func podName(pod string, id attach.ID) string {
	if pod == "" || pod == "/" {
		return strings.TrimPrefix(id.Network+"/"+id.ContainerID, "/")
	}
	return pod
}

// View is what people are shown of the report. Now is when it was collected.
func (r *Report) View(now time.Time) *view.Status {
	n := &view.Status{Schema: view.Schema, Time: now, Pods: []view.Pod{}}
	for i := range r.Attachments {
		p := attachmentView(&r.Attachments[i], r.held(r.Attachments[i].ID), now)
		if r.former(&r.Attachments[i]) {
			p.Pod += " (container " + short(r.Attachments[i].ID.ContainerID) + ")"
		}
		n.Add(p)
	}
	for i := range r.Unshaped { // before failures with the same cause: the agent's word is newer
		n.Add(unshapedView(&r.Unshaped[i]))
	}
	for _, f := range r.Failures {
		p := &view.Pod{Pod: r.name(f.Pod, f.ID), State: view.NotLimited, Since: f.Time, Cause: f.Error, Cure: cureOf(f.Reason)}
		if p.Cure == cureUnshaped && r.AgentLooked.IsZero() {
			p.Cure = cureAlone
		}
		n.Add(p)
	}
	for _, o := range r.Overdue {
		n.Add(&view.Pod{Pod: o.Pod, State: view.NotLimited, Since: o.Since, Cause: o.Error, Cure: cureOverdue})
	}
	for i := range r.Unenforced {
		n.Add(unenforcedView(&r.Unenforced[i]))
	}
	for i := range r.Lost {
		l := &r.Lost[i]
		n.Add(&view.Pod{
			Pod: l.Name(), State: view.Differs, Cause: "no record of " + strings.Join(l.What, ", "), Cure: cureLost,
		})
	}
	for i := range r.Others {
		o := r.Others[i]
		known := slices.IndexFunc(n.Pods, func(p view.Pod) bool { return p.Pod == o.Pod })
		if p := otherView(&o); p != nil && (known < 0 || n.Pods[known].State.AsWanted()) { // what is known already says why
			n.Add(p)
		}
		if o.Name == "" && known >= 0 {
			continue // its devices have their lines
		}
		if slices.ContainsFunc(slices.Concat(r.Lost, r.unread), func(l engine.Lost) bool { return o.Name != "" && l.Interface.HostName == o.Name }) {
			continue // its queue without a record limits it
		}
		// A further device of a pod that is limited as it should be is no failure: a limit is an interface's.
		o.Lacks = o.LeftTo == "" && len(o.Asks)+len(o.Misspelt) > 0 || known >= 0 && !n.Pods[known].State.AsWanted()
		n.Others = append(n.Others, o)
	}
	for i := range r.Groups {
		n.Groups = append(n.Groups, r.Groups[i].Group)
	}
	n.Unread, n.Missing, n.Losses = r.Unread, r.Missing, r.Losses
	n.AgentLooked = r.AgentLooked
	n.Sort()
	return n
}

func unshapedView(u *mailbox.Unshaped) *view.Pod {
	if u.Reason == mailbox.ReasonHostNetwork {
		return &view.Pod{Pod: u.Pod, State: view.HostNetwork, Since: u.Since, Cause: u.Error, Cure: cureHost}
	}
	return &view.Pod{Pod: u.Pod, State: view.NotLimited, Since: u.Since, Cause: u.Error, Cure: cureOf(u.Reason)}
}

// cureOf returns the cure for a pod that could not be limited, by [mailbox.Failure.Reason] or
// [mailbox.Unshaped.Reason].
func cureOf(reason string) string {
	if reason == mailbox.ReasonInvalid {
		return cureInvalid
	}
	return cureUnshaped
}

// name is the name of an attachment, which may be known only from its record.
func (r *Report) name(pod string, id attach.ID) string {
	for i := range r.Attachments {
		at := r.Attachments[i].ID
		if id.Network == "" { // a record of which the name alone is left
			at.Network = ""
		}
		if pod == "" && at == id {
			return r.Attachments[i].Name()
		}
	}
	return podName(pod, id)
}

// former says that an attachment is what is left of a pod whose name another one has: that one
// is not gone.
func (r *Report) former(a *Attachment) bool {
	return (a.Gone || a.Left != "") && slices.ContainsFunc(r.Attachments, func(o Attachment) bool {
		return o.Name() == a.Name() && o.ID.ContainerID != a.ID.ContainerID && !o.Gone
	})
}

// short is as much of a container ID as tools show.
func short(id string) string { return id[:min(len(id), 12)] }

// held says that another party takes a limit away again and again, which holds all the same:
// what is missing at this moment is no other problem.
func (r *Report) held(id attach.ID) bool {
	return slices.ContainsFunc(r.Unenforced, func(u mailbox.Unenforced) bool { return u.ID == id && u.Held })
}

func attachmentView(a *Attachment, held bool, now time.Time) *view.Pod {
	p := &view.Pod{Pod: a.Name(), State: view.Limited, Notes: a.Notes}
	for i := range a.Directions {
		d := &a.Directions[i]
		limit := view.Limit{
			Interface: a.Interface.PodName, Limit: d.Limit, Attached: a.Attached, Passing: d.passing, Past: d.Past,
			Counters: counters(d), Waits: d.BandWaits(), Reached: d.Reached,
		}
		if d.Qdisc != nil {
			limit.Read = d.Qdisc.Read
		}
		p.Limits = append(p.Limits, limit)
		if d.Observed() {
			p.State = view.Observed
		}
	}
	past := slices.IndexFunc(a.Directions, func(d Direction) bool { return d.Bypassed != "" })
	starved, went, who, cure := a.starved, "", "", ""
	for i := range a.Directions {
		d := &a.Directions[i]
		starved = cmp.Or(starved, d.Starved)
		if d.PastBytes > 0 && now.Sub(d.PastLast).Abs() < pastNow && !d.Ceiling && !d.Observed() {
			went = fmt.Sprintf("%s of %s: packets went past podweir in the minute until %s, %v since %s", d.Direction, a.Interface.PodName,
				d.PastLast.UTC().Format(time.RFC3339), units.Bytes(d.PastBytes), d.PastSince.UTC().Format(time.RFC3339))
			who, cure = view.Ahead(d.Ahead)
		}
	}
	switch {
	case a.Interface.NamesakeIndex != 0:
		p.State, p.Cause, p.Cure = view.NotLimited, a.Interface.Uncovered(), cureNamesake
	case a.Beside != "":
		p.State, p.Cause, p.Cure = view.NotLimited, a.Beside, cureBeside
	case a.Released != "":
		p.State, p.Cause, p.Cure = view.NotLimited, a.Released, "podweir repair"
	case a.Gone:
		p.State, p.Cause, p.Cure = view.Unknown, a.Error, cureGone
	case a.Left != "":
		p.State, p.Cause, p.Cure = view.Unknown, a.Error, CureLeft(a.ID)
	case a.Error != "" && starved == "" && len(a.Drift) == 0:
		p.State, p.Cause, p.Cure = view.Unknown, "its record cannot be read: "+a.Error, cureUnknown
		if a.Interface.PodName != "" {
			p.Cause = a.Error
		}
	case past >= 0:
		at := "at the host side"
		p.State, p.Cure = view.NotLimited, cureBypassed
		if a.Directions[past].Side.Is != terms.SideHost {
			at, p.Cure = "in the pod", cureReadAhead
		}
		p.Cause = "packets go past the ingress limit " + at + " of " + a.Interface.PodName + ": " + a.Directions[past].Bypassed
	case starved != "":
		p.State, p.Cause, p.Cure = view.NotLimited, starved, cureStarved
		if a.Interface.Unseen {
			p.Cure = cureUnseen
		}
	case went != "":
		p.State, p.Cause, p.Cure = view.NotLimited, went+who, cure
	case len(a.Drift) > 0 && !held:
		p.State, p.Cause, p.Cure = view.Differs, strings.Join(a.Drift, "; "), cureDiffers
	}
	return p
}

// pastNow is how old what the agent saw go past may be for a pod that is not limited now: it
// looks each minute.
const pastNow = 90 * time.Second

// BandWaits are the waits of the bands that had packets.
func (d *Direction) BandWaits() []view.Wait {
	var all []view.Wait
	for i := range d.Waits {
		if w := &d.Waits[i]; w.Packets > 0 {
			all = append(all, view.Wait{Band: w.Band, P50: w.P50, P99: w.P99})
		}
	}
	return all
}

// Drops is how many packets of a direction were dropped since it was attached.
func (d *Direction) Drops() uint64 {
	c := counters(d)
	return c.Drops
}

func counters(d *Direction) view.Counters {
	var c view.Counters
	for _, n := range d.Counters {
		switch n.Disposition {
		case "light":
			c.LightBytes += n.Bytes
			c.SentBytes += n.Bytes
		case "conforming", "paced", "marked":
			c.HeavyBytes += n.Bytes
			c.SentBytes += n.Bytes
		case "would-wait":
			c.HeavyBytes += n.Bytes
			c.SentBytes += n.Bytes
			c.WouldWaitBytes += n.Bytes
		case "would-drop":
			c.HeavyBytes += n.Bytes
			c.SentBytes += n.Bytes
			c.WouldDropBytes += n.Bytes
		case "exempt":
			c.ExemptBytes += n.Bytes
			c.SentBytes += n.Bytes
		case "dropped-horizon", "dropped-early", "dropped-policed":
			c.DroppedBytes += n.Bytes
			c.Drops += n.Packets
		case "dropped-ceiling": // it went past the program that counts flows
			c.Drops += n.Packets
		}
	}
	if q := d.Qdisc; q != nil {
		c.SentBytes, c.WaitingBytes = q.Bytes, q.BacklogBytes
		c.Drops += q.Drops
	}
	c.HeavyFlows = d.HeavyFlows
	return c
}

// UnenforcedPod is what people know the pod by.
func UnenforcedPod(u *mailbox.Unenforced) string { return podName(u.Pod, u.ID) }

// UnenforcedLine is one line about a limit that the agent found not to hold.
func UnenforcedLine(u *mailbox.Unenforced) string {
	p := unenforcedView(u)
	return fmt.Sprintf("%s %s since %s: %s", p.State, p.Pod, p.Since.UTC().Format(time.RFC3339), p.Cause)
}

func unenforcedView(u *mailbox.Unenforced) *view.Pod {
	p := &view.Pod{Pod: podName(u.Pod, u.ID), State: view.NotLimited, Since: u.Since, Cure: cureExceeded}
	p.Cause = fmt.Sprintf("%s of %s has a limit of %s", u.Direction, u.Interface, view.Rate(float64(u.Rate)))
	switch {
	case u.Carried > 0:
		p.State = view.Exceeded
		p.Cause += " and carried " + view.Rate(float64(u.Carried))
	case u.Held:
		p.State = view.Tampered
		p.Cause = fmt.Sprintf("its %s limit of %s is taken away again and again, and holds", u.Direction, view.Rate(float64(u.Rate)))
	default:
		p.Cause += ", which is taken away again and again"
	}
	cause := u.Of(&u.Limit)
	if u.Cause == mailbox.CauseTaken { // that it is taken away is said already
		cause = u.TakenBy.String()
	}
	p.Cause += "; likely cause: " + cause
	return p
}
