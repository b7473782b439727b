// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package status tells what is attached on a node, whether it is as it should
// be, and what it did, per pod.
package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// Report is the state of a node.
type Report struct {
	// Schema is raised when a field changes its meaning.
	Schema      int          `json:"schema"`
	Attachments []Attachment `json:"attachments"`
	// Young are those that [Settled] left out.
	Young    []attach.ID       `json:"-"`
	Failures []mailbox.Failure `json:"failures,omitempty"`
	// Lost is what podweir has on interfaces without a record.
	Lost []engine.Lost `json:"lost,omitempty"`
	// unread are interfaces whose records cannot be read, which are among Attachments.
	unread []engine.Lost
	// Unenforced are the limits that the agent saw exceeded, or taken away again and
	// again.
	Unenforced []mailbox.Unenforced `json:"unenforced,omitempty"`
	// UnenforcedErr says why these are not known; Unread has it, too.
	UnenforcedErr error `json:"-"`
	// Overdue are the running pods with a limit whose network the agent cannot find.
	Overdue []mailbox.Unshaped `json:"overdue,omitempty"`
	// AgentLooked is when the agent looked at the limits last, zero if none runs.
	AgentLooked time.Time `json:"agentLooked,omitzero"`
	// NotReady are the parts of the agent that do not work, and why, where it was asked.
	NotReady []string `json:"notReady,omitempty"`
	// Unshaped are the other pods that run without a limit, as the agent knows it.
	Unshaped []mailbox.Unshaped `json:"unshaped,omitempty"`
	// Others are the devices of pods that podweir has no limit on, where they were looked for.
	Others []view.Other `json:"others,omitempty"`
	// Groups are the limits that the pods of a namespace have together, as the agent divides them.
	Groups []mailbox.Group `json:"groups,omitempty"`
	// Unread says what is not known because a file in podweir's directory under /run is damaged.
	Unread []string `json:"unread,omitempty"`
	// Missing are which pods without their limit may be missing, and why: the container runtime did not
	// tell of its pods, or podweir-cni could not leave word.
	Missing []string `json:"missing,omitempty"`
	// Losses are places of the node where packets are lost by others than podweir.
	Losses []terms.Loss `json:"losses,omitempty"`
}

// Schema is the version of [Report].
const Schema = 1

// Attachment is one shaped interface of a pod.
type Attachment struct {
	ID        attach.ID        `json:"id"`
	Pod       string           `json:"pod,omitempty"`
	Interface attach.Interface `json:"interface"`
	// By is who made the attachment: plugin, nri, agent or hand.
	By apply.By `json:"by,omitempty"`
	// Attached is when it was made, zero where its record cannot be read.
	Attached time.Time `json:"attached,omitzero"`
	// Set says that `podweir set` changed the limits.
	Set        bool        `json:"set,omitempty"`
	Directions []Direction `json:"directions"`
	// Notes are what else to know, such as limits that are left to others.
	Notes []string `json:"notes,omitempty"`
	// Error says why the interface could not be looked at.
	Error string `json:"error,omitempty"`
	// Gone says that the interface no longer exists, or another one is in its
	// place.
	Gone bool `json:"gone,omitempty"`
	// Left names what still exists of an interface that is not where it was, but not gone.
	Left string `json:"left,omitempty"`
	// Beside names devices of the pod without a limit by which it reaches the same network.
	Beside string `json:"beside,omitempty"`
	// Released names other interfaces of the pod that have no limit since another attachment let go of them.
	Released string `json:"released,omitempty"`
	// Drift names the differences to what it should be.
	Drift []string `json:"drift,omitempty"`

	// starved is the cause for ingress where nothing more is known because of Error.
	starved    string
	inspection *attach.Inspection
	record     *apply.Record
}

// Direction is one direction of an interface.
type Direction struct {
	terms.Limit
	DepthBytes     units.Bytes `json:"depthBytes"`
	MaxWaitSeconds float64     `json:"maxWaitSeconds"`
	// OffloadBytes is the largest packet that TCP in the pod makes, 0 if podweir leaves
	// that to the device.
	OffloadBytes units.Bytes `json:"offloadBytes,omitempty"`
	// Pacing is by what TCP in the pod sizes its packets, nil if podweir leaves that alone.
	Pacing *shaping.Pacing `json:"pacing,omitempty"`
	// Kept are settings that another party chose in place of podweir's, as name=value.
	Kept []string                `json:"kept,omitempty"`
	Hook terms.Named[terms.Hook] `json:"hook"`
	// HookKind is zero where the hook is podweir's own.
	HookKind terms.Named[terms.HookKind] `json:"hookKind,omitzero"`
	Program  string                      `json:"program,omitempty"`
	// Build is the release that attached it last.
	Build string `json:"build,omitempty"`
	// BlockedAt is the side with the program that Blocked names, 0 if there is none.
	BlockedAt terms.Side `json:"-"`
	// Bypassed says why packets go past the limit, "" if it is not known that they do.
	Bypassed string `json:"bypassed,omitempty"`
	// Starved names a program of others that keeps every packet from podweir's, so that the
	// direction has no limit; "" if there is none.
	Starved string `json:"starved,omitempty"`
	// Degraded is what is wanted and not available now.
	Degraded   []attach.Degradation `json:"degraded,omitempty"`
	Notes      []string             `json:"notes,omitempty"`
	Counters   []datapath.Counter   `json:"counters,omitempty"`
	HeavyFlows []terms.Flow         `json:"heavyFlows,omitempty"`
	// Waits are how long packets waited in each band; none where nothing estimates it.
	Waits []datapath.Wait `json:"waits,omitempty"`
	terms.Reached
	// Past is what went past podweir since the agent watches.
	terms.Past
	Qdisc *engine.QueueStatistics `json:"qdisc,omitempty"`
	// DeviceBytes is what the pod's own device has carried in the direction since it was made,
	// within the limit or past it; a packet of many segments counts with one header.
	DeviceBytes uint64 `json:"deviceBytes,omitempty"`

	// passing is DeviceBytes, and how much of that went through podweir, by each counter of [Direction.Seen].
	passing []view.Passing

	// CountersErr says why Counters could not be read; Notes have it too.
	CountersErr error `json:"-"`

	// counts, waited and queued say what there is to read.
	counts, waited, queued bool
}

// Collect looks at every attachment of the node. What cannot be read of one
// attachment is told in its place; the others are complete.
func Collect(node *engine.Node) (*Report, error) {
	ids, err := node.List()
	if err != nil {
		return nil, err
	}
	rep := &Report{Schema: Schema, Attachments: []Attachment{}}
	survey, err := node.Survey()
	if err != nil {
		return nil, err
	}
	queues := node.Queues()
	for _, id := range ids {
		found := of(survey, queues, id)
		if slices.ContainsFunc(found, func(a Attachment) bool { return a.differs() }) {
			found = of(node, queues, id) // the list of the survey may be too old
		}
		rep.Attachments = append(rep.Attachments, found...)
	}
	seeAgain(survey, rep.Attachments)
	sort.Slice(rep.Attachments, func(i, j int) bool {
		a, b := &rep.Attachments[i], &rep.Attachments[j]
		if a.Pod != b.Pod {
			return a.Pod < b.Pod
		}
		return a.ID.String() < b.ID.String()
	})
	if err := rep.addRecords(node.Paths); err != nil {
		return nil, err
	}
	lost, err := node.Lost()
	if err != nil {
		return nil, fmt.Errorf("look for what has no record: %w", err)
	}
	rep.Lost, rep.unread = withoutUnread(lost, rep.Attachments)
	// What an agent left and nobody can read leaves what is seen.
	unread := func(what string, err error) {
		if err != nil {
			rep.Unread = append(rep.Unread, what+" is not known: "+err.Error())
		}
	}
	rep.Unenforced, rep.UnenforcedErr = node.Unenforced()
	unread("whether the agent saw a limit that does not hold", rep.UnenforcedErr)
	reached, err := node.Paths.Mail().Reached()
	unread("how long limits have been reached", err)
	past, err := node.Paths.Mail().Past()
	unread("what went past podweir before", err)
	addReached(rep.Attachments, reached, past)
	rep.Groups, err = node.Paths.Mail().Groups()
	unread("what limits of namespaces carry", err)
	return rep, nil
}

// Recorded is the report of a node where podweir has no state: pods that run without their
// limit are recorded elsewhere.
func Recorded(paths engine.Paths) (*Report, error) {
	rep := &Report{Schema: Schema, Attachments: []Attachment{}}
	return rep, rep.addRecords(paths)
}

// addRecords adds the pods that podweir-cni or the agent recorded to run without a limit.
func (r *Report) addRecords(paths engine.Paths) error {
	var err error
	if r.Failures, err = paths.Mail().Failures(); err != nil {
		return fmt.Errorf("read failure records: %w", err)
	}
	r.Failures = slices.DeleteFunc(r.Failures, func(f mailbox.Failure) bool { return f.Ended() })
	if err := paths.Mail().Unwritable(); err != nil {
		r.Missing = append(r.Missing, "pods that podweir-cni could not limit since: "+err.Error())
	}
	if r.AgentLooked, err = paths.Mail().Looked(); err != nil {
		r.Unread = append(r.Unread, "whether an agent runs is not known: "+err.Error())
	}
	namespaces, err := paths.Mail().RecordedNamespaces()
	for _, name := range namespaces {
		_, unread := paths.Mail().Namespace(name)
		err = errors.Join(err, unread)
	}
	if err != nil {
		r.Unread = append(r.Unread, "what new pods get by their namespaces is not known: "+err.Error())
	}
	unshaped, err := paths.Mail().Unshaped()
	if err != nil {
		return fmt.Errorf("read the agent's records of pods without a limit: %w", err)
	}
	for _, u := range unshaped {
		if u.Reason == mailbox.ReasonOverdue {
			r.Overdue = append(r.Overdue, u)
		} else {
			r.Unshaped = append(r.Unshaped, u)
		}
	}
	return nil
}

// addReached adds to the limits how long they have been reached, and what went past them.
func addReached(all []Attachment, reached []mailbox.Reached, past []mailbox.Past) {
	seen, went := make(map[mailbox.Limit]terms.Reached), make(map[mailbox.Limit]terms.Past)
	for i := range reached {
		seen[reached[i].Limit] = reached[i].Reached
	}
	for i := range past {
		went[past[i].Limit] = past[i].Past
	}
	for i := range all {
		a := &all[i]
		for j := range a.Directions {
			d := &a.Directions[j]
			k := mailbox.Limit{ID: a.ID, Interface: a.Interface.PodName, Direction: d.Direction}
			d.Reached, d.Past = seen[k], went[k]
		}
	}
}

// withoutUnread leaves out what is likely of an attachment whose record cannot be read:
// that is one problem.
func withoutUnread(lost []engine.Lost, all []Attachment) (rest, unread []engine.Lost) {
	for i := range all {
		a := &all[i]
		if a.Error == "" || a.Interface.PodName != "" {
			continue
		}
		at := slices.IndexFunc(lost, func(l engine.Lost) bool { // beside another interface of the pod
			return slices.ContainsFunc(all, func(o Attachment) bool {
				return o.ID == a.ID && o.Interface.PodName != "" && o.Interface.NetNSPath == l.Interface.NetNSPath
			})
		})
		if at < 0 {
			at = slices.IndexFunc(lost, func(l engine.Lost) bool { return l.Interface.PodName == a.ID.IfName })
		}
		if at >= 0 {
			unread = append(unread, lost[at])
			lost = slices.Delete(lost, at, at+1)
		}
	}
	return lost, unread
}

// of looks at the interfaces of one attachment; none if there is no such attachment.
func of(node *engine.Node, queues *engine.Queues, id attach.ID) []Attachment {
	var all []Attachment
	records, err := node.Records(id)
	if err != nil {
		all = append(all, Attachment{ID: id, Error: strings.ReplaceAll(err.Error(), id.String()+" ", "")})
		if len(records) > 0 {
			all[0].Pod = records[0].Pod
		}
	}
	for _, r := range records {
		all = append(all, attachment(node, queues, r))
	}
	for i, r := range records {
		// One of several that is gone: a repair gives the others its share.
		if a := &all[len(all)-len(records)+i]; a.Left != "" && node.Lives(r) && slices.ContainsFunc(all, func(o Attachment) bool { return o.inspection != nil }) {
			a.Drift, a.Left = []string{a.Left}, ""
		}
	}
	released, _, err := node.Released(records)
	for _, i := range released {
		a := &all[len(all)-1] // of a record that could be read
		a.Released = strings.TrimPrefix(a.Released+"; ", "; ") + i.PodName + " has no limit: it came again, or another attachment let go of it"
	}
	if err != nil {
		a := &all[len(all)-1]
		a.Error = cmp.Or(a.Error, err.Error())
	}
	return all
}

// differs says that something of it is not as it should be, or could not be looked at.
func (a *Attachment) differs() bool { return a.Error != "" || a.Released != "" || len(a.Drift) > 0 }

// Bypass marks the ingress limits at the host side of devices: packets go past them, for that reason. With the
// container ID of a pod's sandbox it marks the pod's limit if it is in the pod: the runtime reads what comes ahead of it.
func (r *Report) Bypass(containerID, why string) {
	for i := range r.Attachments {
		a := &r.Attachments[i]
		for j := range a.Directions {
			d := &a.Directions[j]
			here := d.Side.Is == terms.SideHost
			if containerID != "" {
				here = !here && a.ID.ContainerID == containerID
			}
			if here && d.Direction.Is == terms.Ingress && !d.Observed() {
				d.Bypassed, d.CapHolds = why, false
			}
		}
	}
}

// Keep leaves only what is of the pods of which keep says yes, by their names.
func (r *Report) Keep(keep func(pod string) bool) {
	r.Failures = slices.DeleteFunc(r.Failures, func(f mailbox.Failure) bool { return !keep(r.name(f.Pod, f.ID)) })
	r.Attachments = slices.DeleteFunc(r.Attachments, func(a Attachment) bool { return !keep(a.Name()) })
	r.Unenforced = slices.DeleteFunc(r.Unenforced, func(u mailbox.Unenforced) bool { return !keep(podName(u.Pod, u.ID)) })
	r.Lost = slices.DeleteFunc(r.Lost, func(l engine.Lost) bool { return !keep(l.Name()) })
	other := func(u mailbox.Unshaped) bool { return !keep(u.Pod) }
	r.Others = slices.DeleteFunc(r.Others, func(o view.Other) bool { return !keep(o.Title()) })
	r.Overdue, r.Unshaped = slices.DeleteFunc(r.Overdue, other), slices.DeleteFunc(r.Unshaped, other)
}

func attachment(node *engine.Node, queues *engine.Queues, r *apply.Record) Attachment {
	a := Attachment{ID: r.ID, Pod: r.Pod, Interface: r.Interface, By: r.By, Attached: r.Attached, Set: r.Asked != nil, Directions: []Direction{}}
	for _, d := range r.Config.Deferred {
		if r.Config.Limit(d.Direction) == nil { // `podweir set` may have given it one
			a.Notes = append(a.Notes, d.String())
		}
	}
	a.Notes = append(a.Notes, r.Config.Notes...)
	in, err := node.Inspect(r)
	if err != nil {
		a.Error = err.Error()
		if errors.Is(err, apply.ErrGone) {
			a.Gone, a.Left, a.Error = Absent(node, r)
			a.Interface.NamesakeIndex, _ = node.Namesake(r) // an error is Absent's, too
		}
		if in != nil {
			a.starved = in.Starved
		}
		return a
	}
	for _, device := range in.Observed.Devices {
		datapath.ReadAnswers(device.Hooks)
	}
	now := *r
	now.Interface = in.Interface
	a.Interface, a.inspection, a.record = in.Interface, in, r
	a.Drift = terms.Texts(in.Plan)
	if beside, err := node.Beside(&now); err != nil {
		a.Notes = append(slices.Clip(a.Notes), err.Error())
	} else if len(beside) > 0 {
		a.Beside = fmt.Sprintf("%s shares a device of the node with %s, and no limit covers it", strings.Join(beside, ", "), now.Interface.Name())
	}
	before, deviceErr := node.Carried(&now)
	for _, d := range terms.Directions {
		if s := in.Want.Directions[d]; s != nil {
			one := Describe(s)
			_ = one.Measure(node, queues, &now) // its notes say what could not be read
			one.more(node, &now)
			if r.By != apply.ByHand { // who attaches by hand decides
				decision(r, &one.Limit)
			}
			if one.Ahead = beforeRedirect(in.Observed, s); one.Ahead != "" {
				one.CapHolds = false
			}
			if d == terms.Ingress {
				one.Starved = in.Starved
				if in.Unheld != nil {
					one.Starved = cmp.Or(one.Starved, in.Unheld.Error())
				}
			}
			one.Blocked, one.BlockedAt = blocked(in.Observed, d)
			if s.Params.Divided {
				if share := s.Params.Tree.Share(&in.Observed.Device(s.Params.Side).Tree); share != nil {
					one.Share = share.Rate.BitRate()
				}
			}
			for _, g := range in.Degraded {
				if g.Direction == d {
					one.Degraded = append(one.Degraded, g)
				}
			}
			a.Directions = append(a.Directions, one)
		}
	}
	if after, err := node.Carried(&now); err == nil && deviceErr == nil {
		for i := range a.Directions {
			d := &a.Directions[i]
			d.DeviceBytes, d.passing = d.Passing(&before, &after)
		}
	}
	return a
}

// seeAgain reads the queues at the host's side again. They come in one list, and the first list was
// read before most devices. What a device carried in between would seem to have gone past podweir.
func seeAgain(node *engine.Node, all []Attachment) {
	queues := node.Queues()
	for i := range all {
		a := &all[i]
		for j := range a.Directions {
			d := &a.Directions[j]
			if d.Qdisc == nil || d.Side.Is != terms.SideHost || d.Direction.Is != terms.Ingress || len(d.passing) == 0 {
				continue
			}
			now := *a.record
			now.Interface = a.Interface
			if q, err := queues.Statistics(&now, d.Side.Is); err == nil {
				d.passing[0].Seen[1] = q.Bytes // the queue is the first
			} else {
				d.passing = nil
			}
		}
	}
}

// Absent says of an interface that is not where its record says whether it is gone, what
// of it is left if it is not, and both in words.
func Absent(node *engine.Node, r *apply.Record) (gone bool, left, text string) {
	gone, left, err := node.Gone(r)
	switch {
	case err != nil:
		return false, "", err.Error()
	case gone:
		return true, "", "the pod is gone; DEL, GC or `podweir gc` removes the rest"
	case node.Lives(r):
		return false, left, left
	default:
		return false, left, "it is not known whether the pod is gone: " + left
	}
}

// largestPacket is at least the bytes of a packet that a queue dropped, which it counts by
// their number.
const largestPacket = 1 << 16

// Seen is what came by podweir of what the pod's device carried, by each counter that has
// that; none if no counter has. A queue on the way out of the pod, or on the host's side of
// what comes in, has passed what the device carries, and is the first; what else stands
// behind the device sees what it carried, dropped packets too.
func (d *Direction) Seen() (all []uint64) {
	egress := d.Direction.Is == terms.Egress
	atPod := d.Side.Is == terms.SidePod
	if d.Qdisc != nil && (egress && atPod || !egress && d.Side.Is == terms.SideHost) {
		all = append(all, d.Qdisc.Bytes)
	}
	if len(d.Counters) == 0 || d.CountersErr != nil {
		if d.Qdisc != nil && d.Side.Is == terms.SideIFB { // a queue without a program
			all = append(all, d.Qdisc.Bytes+d.Qdisc.BacklogBytes+d.Qdisc.Drops*largestPacket)
		}
		return all
	}
	behind := !egress || !atPod
	sum := uint64(0)
	for _, c := range d.Counters {
		if c.Disposition != "dropped-ceiling" && (behind || !strings.HasPrefix(c.Disposition, "dropped-")) {
			sum += c.Bytes
		}
	}
	return append(all, sum)
}

// Passing returns what the pod's own device had carried before [Direction.Seen] was read, and a reading of each of its
// counters between that and what the device had carried after it.
func (d *Direction) Passing(before, after *hostif.Traffic) (carried uint64, all []view.Passing) {
	device := [2]uint64{before.SentBytes, after.SentBytes}
	if d.Direction.Is == terms.Ingress {
		device = [2]uint64{before.ReceivedBytes, after.ReceivedBytes}
	}
	for _, seen := range d.Seen() {
		all = append(all, view.Passing{Device: device, Seen: &[2]uint64{seen, seen}})
	}
	return device[0], all
}

// Inspection is the look at the interface, nil if there was none.
func (a *Attachment) Inspection() *attach.Inspection { return a.inspection }

// Record is what the attachment is recorded as, nil if it could not be looked at.
func (a *Attachment) Record() *apply.Record { return a.record }

// BySet is who decided a rate that `podweir set` changed.
const BySet = "podweir set"

// decision sets in l what a pod requests in a direction, or what it wrote if that is not accepted,
// and which setting decided on another rate.
func decision(r *apply.Record, l *terms.Limit) {
	d, wish := l.Direction.Is, &r.Config
	if r.Asked != nil {
		wish = r.Asked
		was, is := wish.Limit(d), r.Config.Limit(d)
		switch {
		case was == nil && is != nil:
			l.DecidedBy = BySet
			return
		case is != nil && was.Rate != is.Rate:
			l.Asked, l.DecidedBy = was.Rate, BySet
		}
	}
	if other := wish.Decision(d); other != nil {
		l.Asked, l.AskedText, l.AskedIn = other.Asked, other.Unread, other.UnreadIn
		l.DecidedBy = cmp.Or(l.DecidedBy, other.By)
	}
	if l.DecidedBy == "" && wish.Limit(d) != nil {
		l.Asked = wish.Limit(d).Rate
	}
}

// beforeRedirect names who may end the chain before the redirect to the ifb, which runs last
// on purpose.
func beforeRedirect(obs *attach.Observed, s *attach.DirectionState) string {
	if !s.Params.Redirect {
		return ""
	}
	var all []string
	for _, h := range obs.Device(terms.SidePod).Chain(terms.SidePod, terms.HookIngress).Others() {
		if h.Answer == judge.AnswerUnknown {
			all = append(all, h.String())
		}
	}
	return strings.Join(all, ", ")
}

// blocked names a program of others that drops every packet of a direction, "" if there is
// none, and says at which side it is.
func blocked(obs *attach.Observed, d terms.Direction) (program string, at terms.Side) {
	for _, side := range []terms.Side{terms.SidePod, terms.SideHost} {
		device := obs.Device(side)
		if x := device.XDP; x != nil && terms.DirectionAt(side, x.Hook) == d && (x.Answer == judge.AnswerDrops || x.Answer == judge.AnswerEnds) {
			return fmt.Sprintf("%v on %s %v", *x, device.Name, x.Answer), side
		}
		for i := range device.Hooks {
			h := &device.Hooks[i]
			if !h.Ours && h.Answer == judge.AnswerDrops && terms.DirectionAt(side, h.Hook) == d {
				return fmt.Sprintf("%v on %s %v", *h, device.Name, h.Answer), side
			}
		}
	}
	return "", at
}

// Describe is a direction with everything but its counters.
func Describe(s *attach.DirectionState) Direction {
	p := s.Params
	d := Direction{
		Limit: p.Limit(), DepthBytes: p.DepthBytes, MaxWaitSeconds: p.MaxWait.Seconds(),
		Hook: terms.Name(p.Hook), Program: p.ProgramName(), Notes: slices.Clip(p.Notes),
		counts: p.Counts(), waited: p.Waits(), queued: p.Tree != nil,
	}
	if s.Offload != nil && p.OffloadBytes != 0 {
		d.OffloadBytes = s.Offload.GSO
	}
	if p.Paced {
		d.Pacing, d.Kept = s.Pacing, p.Kept
	}
	if p.Hook == terms.HookEgress || p.Hook == terms.HookIngress {
		d.HookKind = terms.Name(s.HookKind)
	}
	return d
}

// Measure reads the counters of a direction, the waits and the queue. Its error, and the
// notes, say what could not be read.
func (d *Direction) Measure(node *engine.Node, queues *engine.Queues, r *apply.Record) error {
	var waits, queue error
	if d.counts {
		d.Counters, d.CountersErr = node.Counters(r, d.Direction.Is)
		d.note("counters", d.CountersErr)
	}
	if d.waited {
		d.Waits, waits = node.Waits(r, d.Direction.Is)
		d.note("waits", waits)
	}
	if d.queued {
		d.Qdisc, queue = queues.Statistics(r, d.Side.Is)
		d.note("queue", queue)
	}
	return errors.Join(d.CountersErr, waits, queue)
}

// more reads what only people are told.
func (d *Direction) more(node *engine.Node, r *apply.Record) {
	var err error
	if d.counts {
		d.HeavyFlows, err = node.HeavyFlows(r, d.Direction.Is)
		d.note("heavy flows", err)
	}
	if dp, err := node.Dataplane(r, d.Direction.Is); err == nil && dp != nil {
		d.Build = dp.Build
	}
}

// note says that something could not be read.
func (d *Direction) note(what string, err error) {
	if err != nil {
		d.Notes = append(d.Notes, what+": "+err.Error())
	}
}
