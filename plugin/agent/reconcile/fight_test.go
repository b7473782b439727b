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
		f := &fight{}
		for _, s := range tt.mends {
			f.mended(at(s), "queue", true, true)
		}
		last := at(tt.mends[len(tt.mends)-1])
		if f.on(last) != tt.fight {
			t.Errorf("%s: fight %v, want %v", name, f.on(last), tt.fight)
		}
	}
}

// Two mends at once are no fight where something else holds the limit, or where it is not
// in the pod's reach. The fight is over when nothing was mended for a while.
func TestFightIsOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ inPod, exposed bool }{
		"a ceiling holds it": {inPod: true}, "not in the pod": {exposed: true},
	} {
		f := &fight{}
		for s := range 4 {
			f.mended(at(0.5*float64(s)+1.5), "queue", tt.inPod, tt.exposed)
			if f.on(at(1.5)) != (s >= 2) {
				t.Errorf("%s: a fight after %d mends: %v", name, s+1, f.on(at(1.5)))
			}
		}
		if !f.on(at(3)) || f.inPod != tt.inPod {
			t.Errorf("%s: %+v, want a fight", name, f)
		}
		if s := quiet.Seconds(); !f.on(at(2+s)) || f.on(at(3+s)) {
			t.Errorf("%s: not over %v after the last mend", name, quiet)
		}
		f.mended(at(1000), "queue", tt.inPod, tt.exposed)
		if f.on(at(1000)) {
			t.Errorf("%s: one mend later on is a fight", name)
		}
	}
}

// The pod is looked at again when its fight is over, and not at once.
func TestFightHasALookWhenItIsOver(t *testing.T) {
	t.Parallel()
	k, f := key{uid: "pod"}, &fight{}
	for range 3 {
		f.mended(time.Now(), "queue", true, true)
	}
	l := &look{Reconciler: New(Config{}), key: k}
	l.states[k] = &state{fights: map[fightKey]*fight{{direction: terms.Egress}: f}}
	l.fighting()
	_, wait, ok := l.queue.take()
	if ok || wait < quiet-time.Minute || wait > quiet+time.Second || len(l.Tampered) != 1 {
		t.Errorf("the next look of %v is in %v, want in about %v", l.Tampered, wait, quiet)
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
		"in a fight":                      {[]Limit{at(terms.SidePod, false)}, 100, driftPauseExposed},
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
