// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package enforce

import (
	"math/bits"
	"time"
)

// Reached is since when, and for how much of the last minute, a direction has been held at
// its limit.
type Reached struct {
	// Now says that it is held, with pauses of up to [HeldPause]. Since is then the
	// reading with which that began.
	Now   bool
	Since time.Duration
	// LastMinute is the part of the last minute in which it was held, 1 for all of it. It
	// is exact to one thirtieth. Known says that it was watched for some of that minute.
	LastMinute float64
	Known      bool
}

// HeldPause is the longest time below the limit that does not end [Reached.Now]: a sender
// that lost packets needs some of it to come back.
const HeldPause = 10 * time.Second

// The last minute in slots of two seconds.
const (
	slotTime  = 2 * time.Second
	slots     = 30
	allOfThem = 1<<slots - 1
)

// reached adds up when a direction was held. The zero value knows nothing yet.
type reached struct {
	now        bool
	since, end time.Duration
	// history has a bit for each slot in which it was held, the newest is the lowest.
	// known is how many slots were seen, up to all.
	history uint64
	known   int
}

// add adds the time between two readings.
func (h *reached) add(from, to time.Duration, held bool) {
	passed := int(min(to/slotTime-from/slotTime, slots))
	h.history = h.history << passed & allOfThem
	if held {
		h.history |= 1<<passed - 1
	}
	h.known = min(h.known+passed, slots)
	switch {
	case held && !h.now:
		h.now, h.since, h.end = true, from, to
	case held:
		h.end = to
	case to-h.end > HeldPause:
		h.now = false
	}
}

func (h *reached) verdict() Reached {
	r := Reached{Now: h.now, Since: h.since, Known: h.known > 0}
	if r.Known {
		r.LastMinute = float64(bits.OnesCount64(h.history)) / float64(h.known)
	}
	return r
}
