// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/terms"
)

// Reached is how long one direction of an interface has been at its limit, as the agent
// saw it.
type Reached struct {
	ID        attach.ID                    `json:"id"`
	Interface string                       `json:"interface"`
	Direction terms.Named[terms.Direction] `json:"direction"`
	// Since is when it came to its limit, zero if it is not at it.
	Since time.Time `json:"since,omitzero"`
	// LastMinute is the part of the last minute in which it was at its limit, 1 for all
	// of it.
	LastMinute float64 `json:"lastMinute"`
}

// Enforced says whether one direction of a pod is held to its limit.
type Enforced struct {
	Namespace, Pod string
	Direction      terms.Direction
	Enforced       bool
	// Reason is why not, or what else is wrong; "" if nothing is. The reasons are few and
	// fixed.
	Reason string
}

// Held says how long one direction of an interface was held at its limit, since the
// agent began or the pod started.
type Held struct {
	Namespace, Pod, Interface string
	Direction                 terms.Direction
	// Time is the sum of the times between two looks in which the device carried at least
	// 90 % of the limit.
	Time time.Duration
}

// Past is what went past podweir of one direction of an interface.
type Past struct {
	ID        attach.ID                    `json:"id"`
	Interface string                       `json:"interface"`
	Direction terms.Named[terms.Direction] `json:"direction"`
	terms.Past
}

func (d Dir) pastPath() string { return filepath.Join(string(d), "past.json") }

// RecordPast leaves what the agent saw go past, in place of what it left before. It stays
// when the agent ends: it is about what was.
func (d Dir) RecordPast(all []Past) error { return Write(d.pastPath(), all) }

// Past returns what an agent saw go past, none if it saw nothing.
func (d Dir) Past() ([]Past, error) { return readJSON[Past](d.pastPath()) }

// reachedFresh is how long ago the agent may have looked: one that was killed, or cannot
// look any more, leaves records of another minute than the last.
const reachedFresh = 15 * time.Second

func (d Dir) reachedPath() string { return filepath.Join(string(d), "reached.json") }

// RecordReached leaves what the agent sees now, in place of what it saw before.
func (d Dir) RecordReached(all []Reached) error {
	if err := Write(d.reachedPath(), all); err != nil {
		return err
	}
	return d.TouchReached()
}

// TouchReached says that the agent looked and sees what it saw before.
func (d Dir) TouchReached() error {
	now := time.Now()
	return os.Chtimes(d.reachedPath(), now, now)
}

// ForgetReached removes the record of an agent that no longer looks.
func (d Dir) ForgetReached() { _ = os.Remove(d.reachedPath()) }

// fresh says whether the agent has just looked.
func fresh(reached os.FileInfo) bool { return time.Since(reached.ModTime()).Abs() <= reachedFresh }

// Watched says whether an agent watches the limits of the node.
func (d Dir) Watched() (bool, error) {
	st, err := os.Stat(d.reachedPath())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && fresh(st), err
}

// Reached returns the directions that the agent watches, none if no agent does.
func (d Dir) Reached() ([]Reached, error) {
	return readFresh[Reached](d.reachedPath())
}
