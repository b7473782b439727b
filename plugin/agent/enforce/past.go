// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce

import (
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
)

// pastEvery is how many looks there are between two at what goes past a limit: a minute. In
// half a second only a flood shows, in a minute also 20 kbit/s.
const pastEvery = 30

// past is what is known of what went past one direction.
type past struct {
	terms.Past
	limit reconcile.KeptLimit
	// was is the last reading, by each counter, at a time; nil if there is none.
	was []view.Passing
	at  time.Time
}

// passing reads what went past the limits whose turn it is, and adds it up. Nothing is said
// of a minute in which podweir's counters may have begun again: the device is another one, the
// limit or what keeps it was changed, or was put back.
func (w *Watcher) passing(pods []reconcile.PodState) {
	var limits []*reconcile.KeptLimit
	var disturbed []bool
	left := make(map[mailbox.Limit]*past)
	for i := range pods {
		s := &pods[i]
		for j := range s.Limits {
			l := &s.Limits[j]
			if counterOf(l) == counterNone || l.Observed() {
				continue
			}
			p := w.past[keyOf(l)]
			if p == nil { // an agent before this one may have left it somewhere
				p = &past{Past: w.before[keyOf(l)]}
			}
			left[keyOf(l)] = p
			if p.was == nil || (w.looks+l.Interface.HostIndex)%pastEvery == 0 {
				limits = append(limits, l)
				disturbed = append(disturbed, l.Stale || len(s.Mends) > 0 || !s.Outcome.Enforced() || !same(&p.limit, l))
			}
		}
	}
	w.past = left
	news := false
	for i, read := range w.counters.Passing(limits) {
		p, now := left[keyOf(limits[i])], time.Now().UTC().Round(time.Second)
		if n := view.Least(p.was, read); n > 0 && !disturbed[i] {
			news = true
			p.PastBytes, p.PastLast = p.PastBytes+n, now
			if p.PastSince.IsZero() {
				p.PastSince = p.at
			}
		}
		p.was, p.at, p.limit = append([]view.Passing{}, read...), now, *limits[i]
	}
	if news {
		w.recordPast()
	}
}

// recordPast leaves a record for status. That it cannot be is logged.
func (w *Watcher) recordPast() {
	var all []mailbox.Past
	for k, p := range w.past {
		if p.PastBytes > 0 {
			all = append(all, mailbox.Past{Limit: k, Past: p.Past})
		}
	}
	if len(all) == 0 {
		return
	}
	if err := w.cfg.Paths.Mail().RecordPast(all); err != nil {
		w.cfg.Log.Error("record of what went past limits not written", "error", err)
	}
}

// Passing implements [Counters].
func (k *Devices) Passing(limits []*reconcile.KeptLimit) [][]view.Passing {
	all := make([][]view.Passing, len(limits))
	if len(limits) == 0 {
		return all
	}
	node, err := engine.Open(k.paths)
	if err != nil {
		return all // what cannot be read is not judged
	}
	defer node.Close()
	// The queues at the host's side come in one list. All devices are read before it: what a
	// device carried after the list would seem to have gone past podweir.
	before := make([]*hostif.Traffic, len(limits))
	for i, l := range limits {
		if t, err := k.inPod(l, l.Interface.Name()); err == nil {
			before[i] = &t
		}
	}
	queues := node.Queues()
	for i, l := range limits {
		if before[i] != nil {
			all[i] = k.passed(node, queues, l, before[i])
		}
	}
	return all
}

// passed returns a reading of each counter of podweir's for a limit, with the reading of the device from before it.
// It returns nil if something cannot be read.
func (k *Devices) passed(node *engine.Node, queues *engine.Queues, l *reconcile.KeptLimit, before *hostif.Traffic) []view.Passing {
	records, err := node.Records(l.ID)
	at := slices.IndexFunc(records, func(r *apply.Record) bool { return r.Interface.PodName == l.Interface.PodName })
	if err != nil || at < 0 {
		return nil
	}
	d := status.Direction{Limit: l.Limit}
	d.Counters, d.CountersErr = node.Counters(records[at], l.Direction.Is)
	if l.Queue.Is != terms.QueueNone {
		if d.Qdisc, err = queues.Statistics(records[at], l.Side.Is); err != nil {
			return nil
		}
	}
	after, err := k.inPod(l, l.Interface.Name())
	if err != nil {
		return nil
	}
	_, all := d.Passing(before, &after)
	return all
}
