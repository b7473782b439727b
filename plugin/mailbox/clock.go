// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// moment is when something was recorded, by a clock that nobody sets: the time since the node's start, 0 in records of
// releases that did not note it.
type moment struct {
	AfterBoot time.Duration `json:"afterBootNanoseconds,omitempty"`
}

// note notes a moment that [time.Now] returned.
func (m *moment) note(t time.Time) { m.AfterBoot = afterBoot() - time.Since(t) }

// shown is what the node's clock shows now of the moment, which was recorded as was. It is was unless the clock was set.
func (m *moment) shown(was time.Time) time.Time {
	now := time.Now().UTC()
	if is := now.Add(m.AfterBoot - afterBoot()); m.AfterBoot != 0 && is.Sub(was).Abs() > time.Second {
		return is.Round(time.Second)
	}
	return was
}

// afterBoot is the time since the node's start.
func afterBoot() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // every kernel has it
	return time.Duration(ts.Nano())
}

// Clock tells what the node's clock shows now of moments that this process noted, also of those before the clock was
// set: a node may start with the time of its last shutdown and get the right one some seconds later. It is safe for
// concurrent use.
type Clock struct {
	start time.Time

	mu sync.Mutex
	// moved is by how much the node's clock was set since the start.
	moved time.Duration
}

// NewClock returns a clock that starts now.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Passed is the time since the start.
func (c *Clock) Passed() time.Duration { return time.Since(c.start) }

// PassedAt is the time from the start to a moment that was noted by [time.Now].
func (c *Clock) PassedAt(t time.Time) time.Duration { return t.Sub(c.start) }

// At returns the time in UTC, to the second, at which so much had passed since the start. It is the same at each call
// unless the node's clock is set.
func (c *Clock) At(passed time.Duration) time.Time {
	return c.at(passed, time.Now().Round(0), c.Passed())
}

// Of is [Clock.At] of a moment that was noted by [time.Now].
func (c *Clock) Of(t time.Time) time.Time { return c.At(c.PassedAt(t)) }

// at is At when the node's clock shows now, and so much has passed in all.
func (c *Clock) at(passed time.Duration, now time.Time, all time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := c.start.Round(0) // what the clock showed then
	// It is slewed all the time; a jump is more than that.
	if moved := now.Sub(start) - all; (moved - c.moved).Abs() > time.Second {
		c.moved = moved
	}
	return start.Add(passed + c.moved).UTC().Round(time.Second)
}
