// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
)

func TestYoungAttachmentsAreLeftOut(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		attached time.Time
		young    time.Duration
		kept     bool
	}{
		"being made":                            {now, Young, false},
		"a moment before it is old enough":      {now.Add(-Young + time.Millisecond), Young, false},
		"old enough":                            {now.Add(-Young), Young, true},
		"a day old":                             {now.Add(-24 * time.Hour), Young, true},
		"of a release that did not say":         {time.Time{}, Young, true},
		"before the clock was set back":         {now.Add(time.Hour), Young, true},
		"being made, for who asks by hand":      {now, 0, true},
		"of an hour ago, for who asks by hand":  {now.Add(-time.Hour), 0, true},
		"another release, for who asks by hand": {time.Time{}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, young := apart([]Attachment{{Attached: tc.attached}}, now, tc.young)
			if len(got)+len(young) != 1 {
				t.Errorf("%d old and %d young of one attachment", len(got), len(young))
			}
			if kept := len(got) == 1; kept != tc.kept {
				t.Errorf("attached %v before the look: kept %t, want %t", now.Sub(tc.attached), kept, tc.kept)
			}
		})
	}
}

// What differs is looked at again with its lock held, and once for all its interfaces.
func TestWhatDiffersIsLookedAtUnderItsLock(t *testing.T) {
	id := func(s string) attach.ID { return attach.ID{Network: "net", ContainerID: s, IfName: "eth0"} }
	seen := func(s, drift string) Attachment {
		a := Attachment{ID: id(s)}
		if drift != "" {
			a.Drift = []string{drift}
		}
		return a
	}
	held := map[attach.ID]bool{}
	var looked []string
	lock := func(_ context.Context, i attach.ID) (func(), error) {
		if i == id("busy") {
			return nil, errors.New("somebody else has it")
		}
		held[i] = true
		return func() { delete(held, i) }, nil
	}
	again := func(i attach.ID) []Attachment {
		if !held[i] {
			t.Errorf("%v was looked at without its lock", i)
		}
		looked = append(looked, i.ContainerID)
		switch i.ContainerID {
		case "ended":
			return nil
		case "broken":
			return []Attachment{seen("broken", "limit is 10M, want 20M")}
		default:
			return []Attachment{seen(i.ContainerID, "")}
		}
	}
	got := settled(t.Context(), []Attachment{
		seen("fine", ""), seen("being-made", "no queue"), seen("being-made", "no program"), seen("ended", "no queue"),
		seen("broken", "limit is 10M, want 20M"), seen("busy", "no queue"),
		{ID: id("unread"), Error: "half a record"},
	}, lock, again)
	if want := []string{"being-made", "ended", "broken", "unread"}; !slices.Equal(looked, want) {
		t.Errorf("looked at %v once more, want %v", looked, want)
	}
	if want := []attach.ID{id("broken"), id("busy")}; !equalSets(differing(got), want) {
		t.Errorf("differing after all: %v, want %v", differing(got), want)
	}
	if len(got) != 5 || len(held) != 0 {
		t.Errorf("%d attachments and %d locks held, want 5 and none", len(got), len(held))
	}
}

func equalSets(a, b []attach.ID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(i attach.ID) bool { return !slices.Contains(b, i) })
}
