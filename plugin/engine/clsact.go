// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"errors"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/queue"
	"github.com/podweir/podweir/plugin/terms"
)

// seen is what of a device the steps after a look have to know.
type seen struct {
	// noRoot says that it had no root qdisc but the kernel's own, noClsact that it had
	// no clsact qdisc, and madeClsact that podweir made one since.
	noRoot, noClsact, madeClsact bool
	// former says that a filter of podweir's has the handle of former releases.
	former bool
}

// detachFilter removes a filter of ours, and the clsact qdisc that podweir made if
// nothing is left on it.
func detachFilter(r *attach.Record, at *place, s terms.Side, h terms.Hook, pref uint16) error {
	pos := queue.Place{Hook: queueHook(h), Pref: pref, Handle: queue.FilterHandle}
	_, err := queue.DetachClsact(at.handle, at.index, pos, r.MadeClsact(s))
	return err
}

// settleClsact corrects the record, which was written before there was a clsact qdisc
// and says that it is podweir's: somebody else may have been faster.
func (k *kernel) settleClsact(r *attach.Record, at *place, made bool) error {
	now := k.seen[at.device]
	expected := now.noClsact
	now.noClsact, now.madeClsact = false, now.madeClsact || made
	k.seen[at.device] = now
	if made || !expected {
		return nil
	}
	r.LeaveClsact(at.side)
	return k.store.Write(r)
}

// attachFilter puts a filter in its place, or the program into a filter of ours
// that is there. That is looked for last: on a node full of pods it takes longer
// than all the rest.
func (k *kernel) attachFilter(r *attach.Record, at *place, h terms.Hook, pref uint16, d terms.Direction, name string) error {
	program, err := k.filterProgram(r, d, name)
	if err != nil {
		return err
	}
	pos := queue.Place{Hook: queueHook(h), Pref: pref, Handle: queue.FilterHandle}
	made, err := k.addFilter(at, pos, program)
	if err == nil {
		err = k.settleClsact(r, at, made)
	} else if errors.Is(err, queue.ErrFilterExists) {
		if replaced, failed := queue.ReplaceClsact(at.handle, at.index, pos, program); replaced || failed != nil {
			err = failed
		}
	}
	if err != nil || !k.seen[at.device].former {
		return err
	}
	// What is to come has come: no packet meets neither.
	pos.Handle = queue.FormerHandle
	_, err = queue.DetachClsact(at.handle, at.index, pos, false)
	return err
}

// addFilter makes sure of the clsact qdisc, too, unless this process has just made it.
func (k *kernel) addFilter(at *place, pos queue.Place, program queue.Classifier) (made bool, err error) {
	if k.seen[at.device].madeClsact {
		err := queue.AddToClsact(at.handle, at.index, pos, program)
		if err == nil || errors.Is(err, queue.ErrFilterExists) {
			return false, err
		}
	}
	return queue.AttachClsact(at.handle, at.index, pos, program)
}
