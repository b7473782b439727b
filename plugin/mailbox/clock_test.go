// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/testutil/must"
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

// What was recorded keeps its age when the node's clock is set, also where no agent writes it again.
func TestMomentWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	const ago, set = 40 * time.Second, 2 * time.Hour
	at := time.Now().Add(-ago)
	d.RecordFailure(slog.Default(), &Failure{ID: attach.ID{Network: "n", ContainerID: "c", IfName: "eth0"}, Time: at})
	d.RecordUnshaped(slog.Default(), &Unshaped{UID: "u", Since: at})
	same := func(when string, want time.Time, slack time.Duration) {
		failures := must.Get(d.Failures())(t)
		unshaped := must.Get(d.Unshaped())(t)
		for _, got := range []time.Time{failures[0].Time, unshaped[0].Since} {
			if got.Sub(want).Abs() > slack {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
	}
	same("as it was", at, 0)
	for _, path := range []string{d.failurePath(attach.ID{ContainerID: "c", IfName: "eth0"}), d.unshapedPath("u")} { // as by a clock that was two hours behind
		b := must.Get(os.ReadFile(path))(t)
		var record map[string]any
		must.OK(t, json.Unmarshal(b, &record))
		for key, v := range record {
			if was, err := time.Parse(time.RFC3339Nano, fmt.Sprint(v)); err == nil {
				record[key] = was.Add(-set)
			}
		}
		must.OK(t, Write(path, record))
	}
	same("set by two hours", at, 2*time.Second)
}
