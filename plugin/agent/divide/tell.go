// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package divide

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// atLimitPart of a group's limit is what pods send together that are at it, as for one pod.
const atLimitPart = 0.9

// tell records what the groups did since it was called last.
func (r *running) tell(now time.Time) {
	if len(r.groups) == 0 && len(r.loop.groups) == 0 && !r.anyOutside() {
		r.told = time.Time{} // what comes next is not of the time without groups
		return
	}
	passed := now.Sub(r.told)
	if r.told.IsZero() {
		passed = lookEvery
	}
	r.told = now
	r.groups = r.sum(r.loop.Sent(), r.groups, now, passed)
	all := make([]mailbox.Group, 0, len(r.groups))
	for k, g := range r.groups {
		for _, limit := range r.limits(k) {
			packets, bytes, err := r.node.GroupDropped(k.namespace, k.direction, limit)
			if err != nil {
				r.log.Debug("ceiling of a group not read", "namespace", k.namespace, "error", err)
				continue
			}
			r.drop(g, ceiling{k, limit}, drops{packets, bytes})
		}
		all = append(all, *r.shown(g))
	}
	r.reportHeld(now, passed)
	slices.SortFunc(all, func(a, b mailbox.Group) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Direction.Is, b.Direction.Is))
	})
	if len(all) == 0 {
		r.paths.Mail().ForgetGroups()
	} else if err := r.paths.Mail().RecordGroups(all); err != nil {
		r.log.Warn("limits of groups not recorded", "error", err)
	}
}

// untold says that a group came since tell: what is not recorded seems to be divided by nobody.
func (r *running) untold() bool {
	for _, j := range r.known {
		for _, s := range j.shares {
			if r.groups[key{s.Namespace, s.Direction}] == nil {
				return true
			}
		}
		for _, o := range j.outside {
			if r.groups[key{o.Namespace, o.Direction}] == nil {
				return true
			}
		}
	}
	return false
}

// drop adds to a group's sum what a ceiling dropped since it was last read. The counter of a
// ceiling goes with the last queue that has its limit, but the sum must never fall.
func (r *running) drop(g *mailbox.Group, c ceiling, now drops) {
	was := r.dropped[c]
	if now.packets < was.packets {
		was = drops{} // it was made again
	}
	r.dropped[c] = now
	g.DroppedPackets, g.DroppedBytes = g.DroppedPackets+now.packets-was.packets, g.DroppedBytes+now.bytes-was.bytes
}

// reportHeld tells of each group that came to be at its limit for long in the time that passed.
func (r *running) reportHeld(now time.Time, passed time.Duration) {
	for _, g := range r.groups {
		if r.onHeld != nil && longHeldNow(g, now, passed) {
			r.onHeld(r.shown(g))
		}
	}
}

// shown is a group with its time by the node's clock as it is now.
func (r *running) shown(g *mailbox.Group) *mailbox.Group {
	told := *g
	if !told.AtLimitSince.IsZero() {
		told.AtLimitSince = r.clock.Of(told.AtLimitSince)
	}
	return &told
}

// limits are those that queues joined the group with, each of which has a ceiling.
func (r *running) limits(k key) (all []units.BitRate) {
	g := r.loop.groups[k.String()]
	if g == nil {
		return nil
	}
	for _, m := range g.members {
		if !slices.Contains(all, m.limit) {
			all = append(all, m.limit)
		}
	}
	return all
}

// longHeldNow says that a group came to be at its limit for long in the time that passed.
func longHeldNow(g *mailbox.Group, now time.Time, passed time.Duration) bool {
	held := now.Sub(g.AtLimitSince)
	return !g.AtLimitSince.IsZero() && held >= longHeld && held-passed < longHeld
}

func (r *running) anyOutside() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(r.known)), func(j *joined) bool { return len(j.outside) > 0 })
}

// sum adds up what the queues of each group sent in the time that passed; before is what was told.
func (r *running) sum(sent map[string]Sent, before map[key]*mailbox.Group, now time.Time, passed time.Duration) map[key]*mailbox.Group {
	groups, bytes, most := make(map[key]*mailbox.Group), make(map[key]units.Bytes), make(map[key]units.Bytes)
	type podOf struct {
		key
		pod string
	}
	shared := make(map[podOf]bool)
	group := func(namespace string, d terms.Direction, limit units.BitRate) (key, *mailbox.Group) {
		k := key{namespace, d}
		if groups[k] == nil {
			groups[k] = &mailbox.Group{Group: terms.Group{Namespace: namespace, Direction: terms.Name(d), Limit: limit}}
		}
		groups[k].Limit = min(groups[k].Limit, limit)
		return k, groups[k]
	}
	add := func(k key, g *mailbox.Group, pod string, of Sent) {
		bytes[k] += of.Bytes
		g.Sent += units.BitRate(of.bitsPerSecond())
		if of.Bytes > most[k] {
			most[k], g.Largest = of.Bytes, pod
		}
	}
	for _, j := range r.known {
		for name, s := range j.shares {
			k, g := group(s.Namespace, s.Direction, s.Group)
			if !shared[podOf{k, s.Pod}] { // it may have several networks
				shared[podOf{k, s.Pod}] = true
				g.Pods++
			}
			add(k, g, s.Pod, sent[name])
		}
		for name, o := range j.outside {
			k, g := group(o.Namespace, o.Direction, o.Group)
			g.Outside = append(g.Outside, o.Pod)
			add(k, g, o.Pod, sent[name])
		}
	}
	for k, g := range groups {
		slices.Sort(g.Outside)
		g.Outside = slices.Compact(g.Outside)
		was := before[k]
		if was == nil {
			was = &mailbox.Group{}
		}
		g.SentBytes, g.Held = was.SentBytes+bytes[k], was.Held
		g.DroppedPackets, g.DroppedBytes = was.DroppedPackets, was.DroppedBytes
		if bytes[k] > 0 {
			g.LargestPart = float64(most[k]) / float64(bytes[k])
		}
		if float64(g.Sent) >= atLimitPart*float64(g.Limit) {
			g.Held += passed
			if g.AtLimitSince = was.AtLimitSince; g.AtLimitSince.IsZero() {
				g.AtLimitSince = now.Add(-passed)
			}
		}
	}
	return groups
}
