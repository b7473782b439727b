// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"testing"
	"time"
)

// A moment stays as long ago as it is when the node's clock is set, forwards or backwards, and does not follow a clock
// that is slewed.
func TestClockThatIsSet(t *testing.T) {
	t.Parallel()
	c := NewClock()
	start := c.start.Round(0)
	for _, look := range []struct{ set, passed, want time.Duration }{
		{0, time.Minute, 0},
		{300 * time.Millisecond, 2 * time.Minute, 0},
		{2 * time.Hour, 3 * time.Minute, 2 * time.Hour},
		{-365 * 24 * time.Hour, 4 * time.Minute, -365 * 24 * time.Hour},
	} {
		const noted = 40 * time.Second
		want := start.Add(noted + look.want).UTC().Round(time.Second)
		if got := c.at(noted, start.Add(look.passed+look.set), look.passed); !got.Equal(want) {
			t.Errorf("the clock was set by %v: %v, want %v", look.set, got, want)
		}
	}
	if got, now := c.Of(time.Now()), time.Now(); now.Sub(got).Abs() > 2*time.Second {
		t.Errorf("now is %v, want about %v", got, now)
	}
}
