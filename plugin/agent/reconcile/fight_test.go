// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/terms"
)

var start = time.Unix(1_700_000_000, 0)

// at is so many seconds after the start.
func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func TestFightBeginsWithTheThirdMendInAMinute(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mends []float64
		fight bool
	}{
		"two":              {[]float64{0, 1}, false},
		"two at once":      {[]float64{0, 0.9}, true},
		"three":            {[]float64{0, 1, 2}, true},
		"three in 59 s":    {[]float64{0, 30, 59}, true},
		"three in 61 s":    {[]float64{0, 30, 61}, false},
		"one each 31 s":    {[]float64{0, 31, 62, 93, 124, 155}, false},
		"three after some": {[]float64{0, 100, 200, 230, 240}, true},
	} {
		f := &fight{quiet: DefaultQuiet}
		for _, s := range tt.mends {
			f.mended(at(s), "queue", true, true)
		}
		last := at(tt.mends[len(tt.mends)-1])
		if f.on(last) != tt.fight || f.hostSide(last) != tt.fight {
			t.Errorf("%s: fight %v, host side %v, want %v", name, f.on(last), f.hostSide(last), tt.fight)
		}
	}
}

// A limit that something else holds stays where it is, and so does one that is not in
// the pod's reach: the fight is over when nothing was mended for a while.
func TestFightWithoutAMove(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ inPod, exposed bool }{
		"a ceiling holds it": {inPod: true}, "not in the pod": {exposed: true},
	} {
		f := &fight{quiet: DefaultQuiet}
		for s := range 4 {
			f.mended(at(0.5*float64(s)+1.5), "queue", tt.inPod, tt.exposed)
			if f.on(at(1.5)) != (s >= 2) {
				t.Errorf("%s: a fight after %d mends: %v", name, s+1, f.on(at(1.5)))
			}
		}
		if f.hostSide(at(3)) || !f.on(at(3)) || f.inPod != tt.inPod {
			t.Errorf("%s: %+v, want a fight where it is", name, f)
		}
		if quiet := DefaultQuiet.Seconds(); !f.on(at(2+quiet)) || f.on(at(3+quiet)) {
			t.Errorf("%s: over %v after the last mend, want %v", name, f.on(at(2+quiet)), DefaultQuiet)
		}
		f.mended(at(1000), "queue", tt.inPod, tt.exposed)
		if f.on(at(1000)) {
			t.Errorf("%s: one mend later on is a fight", name)
		}
	}
}

// After a while on the host side the limit goes back into the pod. If it is taken away
// there at once it leaves for longer, by one mend.
func TestFightGoesBack(t *testing.T) {
	t.Parallel()
	f := &fight{quiet: DefaultQuiet}
	now, calm := start, DefaultQuiet
	for range 30 { // it cannot be moved at once, or at all
		f.mended(now, "queue", true, true)
	}
	for round := range 6 {
		back := now.Add(calm)
		if !f.hostSide(back.Add(-time.Second)) || !f.on(back.Add(-time.Second)) {
			t.Fatalf("round %d: not on the host side for %v", round, calm)
		}
		if f.hostSide(back) || f.on(back) {
			t.Fatalf("round %d: on the host side for more than %v", round, calm)
		}
		now = back.Add(calm / 2)
		f.mended(now, "queue", true, true)
		calm = min(2*calm, quietMax)
	}
	if calm != quietMax {
		t.Errorf("the time ends at %v, want %v", calm, quietMax)
	}
	// Somebody who is quiet for long starts again.
	now = now.Add(3 * quietMax)
	f.mended(now, "queue", true, true)
	if f.on(now) {
		t.Error("one mend after a long time is a fight")
	}
}

func TestFightOfAnAgentBefore(t *testing.T) {
	t.Parallel()
	f := &fight{quiet: DefaultQuiet}
	f.adopt(start)
	if !f.on(start) || !f.hostSide(start.Add(DefaultQuiet-time.Second)) || f.hostSide(start.Add(DefaultQuiet)) {
		t.Errorf("%+v, want the host side for %v", f, DefaultQuiet)
	}
}

// A mend that does not move the direction makes the fight outlast its time on the host
// side. Each look is at a time at which something changes, and not at once.
func TestFightOutlastsTheHostSide(t *testing.T) {
	t.Parallel()
	k := key{uid: "pod"}
	f := &fight{quiet: DefaultQuiet}
	for s := range 3 {
		f.mended(time.Now().Add(time.Duration(s)*time.Second-2*DefaultQuiet/3), "queue", true, true)
	}
	until := f.until
	f.mended(time.Now(), "queue", false, false)
	if got := f.next(time.Now()); !got.Equal(until) {
		t.Errorf("on the host side the next look is in %v, want the end there in %v", time.Until(got), time.Until(until))
	}
	f.until = time.Now().Add(-time.Second)
	l := &look{Reconciler: New(Config{}), key: k}
	l.states[k] = &state{fights: map[fightKey]*fight{{direction: terms.Egress}: f}}
	l.fighting()
	_, wait, ok := l.queue.take()
	if ok || wait < DefaultQuiet-time.Minute || wait > DefaultQuiet+time.Second || len(l.Tampered) != 1 {
		t.Errorf("the next look of %v is in %v, want in about %v", l.Tampered, wait, DefaultQuiet)
	}
	if over := f.next(time.Now()); !f.on(over.Add(-time.Second)) || f.on(over) {
		t.Errorf("not over at %v", over)
	}
}

// Nobody's limit is left away for long because he takes it away often.
func TestDriftPause(t *testing.T) {
	t.Parallel()
	at := func(side terms.Side, ceiling bool) Limit { return Limit{Limit: limitAt(terms.Egress, side, ceiling)} }
	covered := at(terms.SidePod, true)
	for name, tt := range map[string]struct {
		limits []Limit
		mends  int
		want   time.Duration
	}{
		"the first":                       {[]Limit{at(terms.SidePod, false)}, 0, driftPauseFirst},
		"the first with a ceiling":        {[]Limit{covered}, 0, driftPauseMin},
		"the next is quick":               {[]Limit{at(terms.SidePod, false)}, 2, driftPauseNext},
		"where the host side is taken":    {[]Limit{at(terms.SidePod, false)}, 100, driftPauseExposed},
		"one of two":                      {[]Limit{covered, at(terms.SideIFB, false)}, 100, driftPauseExposed},
		"on the host side":                {[]Limit{covered, at(terms.SideHost, false)}, 100, driftPauseExposed},
		"the first on the host side":      {[]Limit{covered, at(terms.SideHost, false)}, 0, driftPauseMin},
		"with a ceiling":                  {[]Limit{covered}, 2, 4 * driftPauseMin},
		"with a ceiling, for a long time": {[]Limit{covered}, 100, driftPauseMax},
	} {
		s := &state{PodState: PodState{Limits: tt.limits}, mends: make([]time.Time, tt.mends)}
		if got := s.driftPause(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
