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
		a := &r.Attachments[i]
		p := view.Pod{Pod: r.nameOf(a), State: view.Limited, Notes: a.Notes}
		for j := range a.Directions {
			d := &a.Directions[j]
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
		n.Add(&p)
		// The first one is the worst, and often why there are others.
		if all := r.troubles(a, now); len(all) > 0 && (all[0].Fault != terms.FaultDiffers || !r.held(a.ID)) {
			n.Add(troubled(&all[0]))
		}
	}
	recorded := r.recorded()
	for i := range recorded {
		n.Add(troubled(&recorded[i]))
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
	n.AgentLooked, n.NotReady = r.AgentLooked, r.NotReady
	n.Sort()
	return n
}

// states are those of pods, by what is wrong with their limits.
var states = map[terms.Fault]view.State{
	terms.FaultUnshaped: view.NotLimited, terms.FaultUncovered: view.NotLimited, terms.FaultPast: view.NotLimited,
	terms.FaultOverdue: view.NotLimited, terms.FaultTaken: view.NotLimited, terms.FaultExceeded: view.Exceeded,
	terms.FaultDiffers: view.Differs, terms.FaultLost: view.Differs, terms.FaultUnread: view.Unknown, terms.FaultLeft: view.Unknown,
	terms.FaultHeld: view.Tampered, terms.FaultHostNetwork: view.HostNetwork,
}

func troubled(t *terms.Trouble) *view.Pod {
	return &view.Pod{Pod: t.Pod, State: states[t.Fault], Since: t.Since, Cause: strings.Join(t.Causes, "; "), Cure: t.Cure}
}

// Troubles are all that is wrong with limits, of which [Report.View] shows the worst of each
// attachment: the doctor has a code for each.
func (r *Report) Troubles(now time.Time) (all []terms.Trouble) {
	for i := range r.Attachments {
		all = append(all, r.troubles(&r.Attachments[i], now)...)
	}
	return append(all, r.recorded()...)
}

// recorded are those that podweir-cni and the agent recorded, and what nobody recorded.
func (r *Report) recorded() (all []terms.Trouble) {
	add := func(f terms.Fault, pod, container string, since time.Time, cause, cure string) {
		all = append(all, terms.Trouble{Fault: f, Pod: pod, Container: container, Since: since, Causes: []string{cause}, Cure: cure})
	}
	for i := range r.Unshaped {
		if u := &r.Unshaped[i]; u.Reason == mailbox.ReasonHostNetwork {
			add(terms.FaultHostNetwork, u.Pod, "", u.Since, u.Error, cureHost)
		} else {
			add(terms.FaultUnshaped, u.Pod, "", u.Since, u.Error, cureOf(u.Reason))
		}
	}
	for i := range r.Failures {
		f := &r.Failures[i]
		name, cure := r.name(f.Pod, f.ID), cureOf(f.Reason)
		if cure == cureUnshaped && r.AgentLooked.IsZero() {
			cure = cureAlone
		}
		// What the agent says of the pod in the same words is newer.
		if !slices.ContainsFunc(r.Unshaped, func(u mailbox.Unshaped) bool { return u.Pod == name && u.Error == f.Error }) {
			add(terms.FaultUnshaped, name, f.ID.ContainerID, f.Time, f.Error, cure)
		}
	}
	for i := range r.Overdue {
		add(terms.FaultOverdue, r.Overdue[i].Pod, "", r.Overdue[i].Since, r.Overdue[i].Error, cureOverdue)
	}
	for i := range r.Unenforced {
		u := &r.Unenforced[i]
		fault, cause := unenforced(u)
		add(fault, podName(u.Pod, u.ID), u.ID.ContainerID, u.Since, cause, cureExceeded)
	}
	for i := range r.Lost {
		add(terms.FaultLost, r.Lost[i].Name(), "", time.Time{}, "no record of "+strings.Join(r.Lost[i].What, ", "), cureLost)
	}
	return all
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

// nameOf is the name of an attachment, with its container if it is what is left of a pod whose name another one has
// by now: that one is not gone.
func (r *Report) nameOf(a *Attachment) string {
	if (a.Gone || a.Left != "") && slices.ContainsFunc(r.Attachments, func(o Attachment) bool {
		return o.Name() == a.Name() && o.ID.ContainerID != a.ID.ContainerID && !o.Gone
	}) {
		return a.Name() + " (container " + short(a.ID.ContainerID) + ")"
	}
	return a.Name()
}

// short is as much of a container ID as tools show.
func short(id string) string { return id[:min(len(id), 12)] }

// held says that another party takes a limit away again and again, which holds all the same:
// what is missing at this moment is no other problem.
func (r *Report) held(id attach.ID) bool {
	return slices.ContainsFunc(r.Unenforced, func(u mailbox.Unenforced) bool { return u.ID == id && u.Held })
}

// troubles are what is wrong with an attachment, the worst first.
func (r *Report) troubles(a *Attachment, now time.Time) (all []terms.Trouble) {
	name := r.nameOf(a)
	add := func(f terms.Fault, cure string, causes ...string) {
		all = append(all, terms.Trouble{Fault: f, Pod: name, Container: a.ID.ContainerID, Causes: causes, Cure: cure})
	}
	switch {
	case a.Interface.NamesakeIndex != 0:
		add(terms.FaultUncovered, cureNamesake, a.Interface.Uncovered())
	case a.Beside != "":
		add(terms.FaultUncovered, cureBeside, a.Beside)
	case a.Released != "":
		add(terms.FaultUncovered, "podweir repair", a.Released)
	case a.Gone:
		add(terms.FaultLeft, cureGone, a.Error)
	case a.Left != "":
		add(terms.FaultLeft, CureLeft(a.ID), a.Error)
	}
	told := len(all) > 0
	starved, went, cure := a.starved, "", ""
	for i := range a.Directions {
		d := &a.Directions[i]
		starved = cmp.Or(starved, d.Starved)
		switch {
		case d.Bypassed != "" && d.Side.Is == terms.SideHost:
			add(terms.FaultPast, cureBypassed, "packets go past the ingress limit at the host side of "+a.Interface.PodName+": "+d.Bypassed)
		case d.Bypassed != "":
			add(terms.FaultPast, cureReadAhead, "packets go past the ingress limit in the pod of "+a.Interface.PodName+": "+d.Bypassed)
		}
		if d.PastBytes > 0 && now.Sub(d.PastLast).Abs() < pastNow && !d.Ceiling && !d.Observed() {
			var who string
			who, cure = view.Ahead(d.Ahead)
			went = fmt.Sprintf("%s of %s: packets went past podweir in the minute until %s, %v since %s%s", d.Direction, a.Interface.PodName,
				d.PastLast.UTC().Format(time.RFC3339), units.Bytes(d.PastBytes), d.PastSince.UTC().Format(time.RFC3339), who)
		}
	}
	if starved != "" {
		fault := terms.FaultPast
		// No step of a repair goes ahead of what takes the packets: the pod has no limit, if the agent does not say so.
		if in := a.inspection; in != nil && in.Unheld != nil && !slices.ContainsFunc(r.Unshaped, func(u mailbox.Unshaped) bool { return u.Pod == a.Pod }) {
			fault = terms.FaultUnshaped
		}
		if add(fault, cureStarved, starved); a.Interface.Unseen {
			all[len(all)-1].Cure = cureUnseen
		}
	}
	if went != "" {
		add(terms.FaultPast, cure, went)
	}
	switch {
	case len(a.Drift) > 0:
		add(terms.FaultDiffers, cureDiffers, a.Drift...)
	case a.Error != "" && !told && a.Interface.PodName == "":
		add(terms.FaultUnread, cureUnknown, "its record cannot be read: "+a.Error)
	case a.Error != "" && !told:
		add(terms.FaultUnread, cureUnknown, a.Error)
	}
	return all
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
		case "exempt":
			c.ExemptBytes += n.Bytes
		case "would-wait":
			c.WouldWaitBytes += n.Bytes
		case "would-drop":
			c.WouldDropBytes += n.Bytes
		case "dropped-horizon", "dropped-early", "dropped-policed":
			c.DroppedBytes += n.Bytes
			c.Drops += n.Packets
		case "dropped-ceiling": // it went past the program that counts flows
			c.Drops += n.Packets
		case "conforming", "paced", "marked":
			c.HeavyBytes += n.Bytes
		}
	}
	c.HeavyBytes += c.WouldWaitBytes + c.WouldDropBytes
	c.SentBytes = c.LightBytes + c.HeavyBytes + c.ExemptBytes
	if q := d.Qdisc; q != nil {
		c.SentBytes, c.WaitingBytes = q.Bytes, q.BacklogBytes
		c.Drops += q.Drops
	}
	c.HeavyFlows = d.HeavyFlows
	return c
}

// unenforced is what is wrong with a limit that the agent found not to hold, and why.
func unenforced(u *mailbox.Unenforced) (f terms.Fault, cause string) {
	f, cause = terms.FaultTaken, fmt.Sprintf("%s of %s has a limit of %s", u.Direction, u.Interface, view.Rate(float64(u.Rate)))
	switch {
	case u.Carried > 0:
		f = terms.FaultExceeded
		cause += " and carried " + view.Rate(float64(u.Carried))
	case u.Held:
		f = terms.FaultHeld
		cause = fmt.Sprintf("its %s limit of %s is taken away again and again, and holds", u.Direction, view.Rate(float64(u.Rate)))
	default:
		cause += ", which is taken away again and again"
	}
	likely := u.Of(&u.Limit)
	if u.Cause == mailbox.CauseTaken { // that it is taken away is said already
		likely = u.TakenBy.String()
	}
	return f, cause + "; likely cause: " + likely
}
