// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/status/view"
)

// noDoctor says why nothing is known of what the doctor found on a node.
func noDoctor(n *Node) string {
	switch {
	case n.Answer == nil:
		return n.Error
	case n.Answer.Doctor == nil:
		return "the agent's doctor has not looked yet, or is off (doctor-interval)"
	default:
		return ""
	}
}

// found are the nodes on which a check had one result, in their order.
type found struct {
	first doctor.Outcome
	nodes []string
	// seen are the nodes by what was seen there.
	seen groups
}

// Merged is one report about all nodes that answered: a finding for each check and
// result, with the nodes that have it in its title. What is ok or skipped on every node
// is one, too; what is ok on some and not on others is listed for the others alone.
func (c *Nodes) Merged() *doctor.Report {
	all := map[string]map[doctor.Status]*found{}
	about := map[string]map[string]bool{"version": {}, "kernel": {}, "runtime": {}, "profile": {}, "delivery": {}}
	looked := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if noDoctor(n) != "" {
			continue
		}
		looked++
		r := n.Answer.Doctor
		for what, value := range map[string]string{
			"version": r.Version, "kernel": r.Kernel, "runtime": r.Runtime, "profile": r.Profile, "delivery": r.Delivery,
		} {
			about[what][value] = true
		}
		for j := range r.Checks {
			merge(all, n.Name, &r.Checks[j])
		}
	}
	some := func(what string) string { return strings.Join(slices.Sorted(maps.Keys(about[what])), " and ") }
	merged := &doctor.Report{
		Schema: doctor.Schema, Version: some("version"), Kernel: some("kernel"), Runtime: some("runtime"),
		Profile: some("profile"), Delivery: some("delivery"), Checks: []doctor.Outcome{}, Count: map[doctor.Status]int{},
	}
	for _, of := range all {
		for _, s := range results(of) {
			merged.Checks = append(merged.Checks, of[s].outcome(looked))
			merged.Count[s]++
		}
	}
	slices.SortStableFunc(merged.Checks, doctor.Compare)
	return merged
}

func merge(all map[string]map[doctor.Status]*found, node string, o *doctor.Outcome) {
	if all[o.Code] == nil {
		all[o.Code] = map[doctor.Status]*found{}
	}
	f := all[o.Code][o.Status]
	if f == nil {
		f = &found{first: *o}
		all[o.Code][o.Status] = f
	}
	f.nodes = append(f.nodes, node)
	f.seen.add(o.Seen, node)
}

// results are the results that are listed of a check: its problems, or what else there is.
func results(of map[doctor.Status]*found) []doctor.Status {
	var list []doctor.Status
	for _, s := range []doctor.Status{doctor.Fail, doctor.Warn, doctor.Unknown} {
		if of[s] != nil {
			list = append(list, s)
		}
	}
	if list == nil {
		for _, s := range []doctor.Status{doctor.OK, doctor.Skip} {
			if of[s] != nil {
				return []doctor.Status{s}
			}
		}
	}
	return list
}

// maxSeen is how many different things are told that were seen on nodes.
const maxSeen = 3

func (f *found) outcome(total int) doctor.Outcome {
	o := f.first
	if o.Status == doctor.OK || o.Status == doctor.Skip {
		return o
	}
	o.Title = fmt.Sprintf("on %d of %s: %s. %s", len(f.nodes), count(total, "node"), view.Names(f.nodes), o.Title)
	if len(f.seen.reasons) == 1 {
		return o
	}
	var parts []string
	for _, seen := range f.seen.reasons[:min(maxSeen, len(f.seen.reasons))] {
		parts = append(parts, fmt.Sprintf("%s: %s", view.Names(f.seen.names[seen]), seen))
	}
	if more := len(f.seen.reasons) - maxSeen; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more, see doctor --node NODE", more))
	}
	o.Seen = strings.Join(parts, "; ")
	return o
}

// Doctor is what the doctors of all nodes found, as [doctor.Report.Table] has
// it, after the nodes of which nothing is known.
func (c *Nodes) Doctor(now time.Time, format doctor.Format) string {
	var b strings.Builder
	unknown := c.group(noDoctor)
	if unknown.count+c.Missing > 0 {
		b.WriteString(c.unknownText(unknown) + "\n")
	}
	if unknown.count == len(c.Nodes) {
		return b.String()
	}
	b.WriteString(c.versions())
	fmt.Fprintf(&b, "%s looked at, %s.\n", count(len(c.Nodes)-unknown.count, "node"), c.oldest(now))
	return b.String() + c.Merged().Table(format)
}

func (c *Nodes) oldest(now time.Time) string {
	var at time.Time
	name := ""
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if noDoctor(n) == "" && (name == "" || n.Answer.DoctorTime.Before(at)) {
			at, name = n.Answer.DoctorTime, n.Name
		}
	}
	return fmt.Sprintf("the oldest look %v ago (%s)", max(now.Sub(at), 0).Round(time.Second), name)
}

// DoctorExit is the exit status for what the doctors found and why it is not 0: 1 if a
// check failed, else 2 if a check or a node is unknown.
func (c *Nodes) DoctorExit() (status int, why string) {
	merged := c.Merged()
	status = merged.Exit()
	summary := merged.Summary()
	n := c.group(noDoctor).count + c.Missing
	if n == 0 {
		return status, summary
	}
	if status == doctor.ExitOK {
		status = ExitUnknown
	}
	why = fmt.Sprintf("%d of %d nodes are unknown", n, c.Total())
	if summary != "" {
		why += "; " + summary
	}
	return status, why
}
