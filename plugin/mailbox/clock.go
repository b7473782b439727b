// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// moment has by which clock something was recorded: [Booted] at that time.
type moment struct {
	Booted time.Time `json:"booted,omitzero"`
}

// note notes a moment that [time.Now] returned.
func (m *moment) note(t time.Time) { m.Booted = Booted(t) }

// shown is what the node's clock shows now of the moment, which was recorded as was. It is was unless the clock was set.
func (m *moment) shown(was time.Time) time.Time { return was.Add(Moved(m.Booted)) }

// Booted is when the node started, in UTC, by what its clock showed at a time that [time.Now] returned. That is another
// time after the clock was set.
func Booted(at time.Time) time.Time {
	return at.Round(0).UTC().Add(time.Since(at) - afterBoot()).Truncate(time.Millisecond)
}

// Moved is by how much the node's clock was set since [Booted] was a time; 0 for the zero time. The clock is slewed all
// the time; a jump is more than a second.
func Moved(booted time.Time) time.Duration {
	moved := Booted(time.Now()).Sub(booted).Round(time.Second)
	if booted.IsZero() || moved.Abs() <= time.Second {
		return 0
	}
	return moved
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
