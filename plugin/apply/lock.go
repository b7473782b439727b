// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/podweir/podweir/plugin/attach"
)

// workTime is how long the steps under an attachment's lock may take together. They
// take milliseconds; a minute is for machines that stand still meanwhile.
const workTime = time.Minute

// ErrLate means that a step was not taken, since those before it took too long. What
// they made has a record: the next ADD or repair goes on, and DEL removes it.
var ErrLate = errors.New("no time is left for this step")

// Lock excludes every other process from an attachment, and gives the work on it a
// deadline, until unlock is called. The end of ctx ends the wait, not the work: it
// would be left half done.
func (e *Executor) Lock(ctx context.Context, id attach.ID) (unlock func(), err error) {
	release, err := e.store.Lock(ctx, id)
	if err != nil {
		return nil, err
	}
	e.begin()
	return func() {
		e.deadline = time.Time{}
		e.kernel.SetDeadline(e.deadline)
		release()
	}, nil
}

// lockKept is Lock under the name by which an attachment is kept, and returns that.
func (e *Executor) lockKept(ctx context.Context, id attach.ID) (kept attach.ID, unlock func(), err error) {
	if kept, err = e.Kept(id); err == nil {
		unlock, err = e.Lock(ctx, kept)
	}
	return kept, unlock, err
}

// begin gives the work a deadline from now on.
func (e *Executor) begin() {
	e.began = e.now()
	e.deadline = e.began.Add(workTime)
	e.kernel.SetDeadline(e.deadline)
}

// late says why a step is not to be taken.
func (e *Executor) late() error {
	now := e.now()
	if e.deadline.IsZero() || now.Before(e.deadline) {
		return nil
	}
	return fmt.Errorf("%w: the work on this attachment began %v ago, and may take %v", ErrLate, now.Sub(e.began).Round(time.Millisecond), workTime)
}
