// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"context"
	"slices"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
)

// Young is the age below which the agent's doctor leaves an attachment out: the primary
// CNI may still be at work on the pod's devices, and an alarm would last until the next
// look. An operator who asks by hand is told at once.
const Young = 10 * time.Second

// Settled is [Collect] for a verdict: it leaves out attachments made less than an age
// ago, and looks once more at what differs, since a change may have been under way.
func Settled(ctx context.Context, node *engine.Node, age time.Duration) (*Report, error) {
	rep, err := Collect(node)
	if err != nil {
		return nil, err
	}
	again := func(id attach.ID) []Attachment { return of(node, node.Queues(), id) }
	old, young := apart(rep.Attachments, time.Now(), age)
	changing := func(a *Attachment) bool {
		return a.record != nil && time.Since(node.Pinned(a.record)).Abs() < Young
	}
	rep.Attachments, rep.Young = settled(ctx, old, node.Lock, again, changing)
	rep.Young = append(rep.Young, young...)
	seeAgain(node, rep.Attachments)
	return rep, nil
}

// apart takes out attachments made less than an age ago. One that does not say when it was made is old, and so is one
// whose time is to come by more than the age: the clock was set back.
func apart(all []Attachment, now time.Time, age time.Duration) (old []Attachment, young []attach.ID) {
	for i := range all {
		if now.Sub(all[i].Attached).Abs() < age {
			young = append(young, all[i].ID)
		} else {
			old = append(old, all[i])
		}
	}
	return old, young
}

// settleWait bounds how long the doctor waits for changes that are under way; its
// default checks have 2 s.
const settleWait = 500 * time.Millisecond

// settled looks once more at each attachment that differs, with its lock held: an ADD,
// a DEL or a repair that is half done is no difference. One that cannot be locked in time is left
// out and returned as busy if its pins are changing; else it stays as it was seen, since who holds the lock may hang.
func settled(
	ctx context.Context, all []Attachment, lock func(context.Context, attach.ID) (func(), error),
	again func(attach.ID) []Attachment, changing func(*Attachment) bool,
) (out []Attachment, busy []attach.ID) {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	anew := map[attach.ID]bool{}
	for _, id := range differing(all) {
		unlock, err := lock(ctx, id)
		switch {
		case err == nil:
			out = append(out, again(id)...)
			unlock()
		case slices.ContainsFunc(all, func(a Attachment) bool { return a.ID == id && changing(&a) }):
			busy = append(busy, id)
		default:
			continue
		}
		anew[id] = true
	}
	return append(slices.DeleteFunc(all, func(a Attachment) bool { return anew[a.ID] }), out...), busy
}

// differing are the attachments with a difference or an error, each once.
func differing(all []Attachment) []attach.ID {
	var ids []attach.ID
	for i := range all {
		if a := &all[i]; a.differs() && !slices.Contains(ids, a.ID) {
			ids = append(ids, a.ID)
		}
	}
	return ids
}
