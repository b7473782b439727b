// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Each limit gets the time for which it has been reached, and that of no other. What no
// agent watches is unknown, which is not 0.
func TestAddReached(t *testing.T) {
	since := time.Date(2026, 11, 24, 14, 2, 0, 0, time.UTC)
	id := func(container string) attach.ID {
		return attach.ID{Network: "net", ContainerID: container, IfName: "eth0"}
	}
	one := func(container, device string, directions ...terms.Direction) Attachment {
		a := Attachment{ID: id(container), Pod: "ns/" + container, Interface: attach.Interface{PodName: device}}
		for _, d := range directions {
			a.Directions = append(a.Directions, Direction{Limit: terms.Limit{Direction: terms.Name(d)}})
		}
		return a
	}
	rep := Report{Attachments: []Attachment{one("web", "eth0", terms.Egress, terms.Ingress), one("web", "net1", terms.Egress), one("api", "eth0", terms.Egress)}}
	addReached(rep.Attachments, []engine.Reached{
		{ID: id("web"), Interface: "eth0", Direction: terms.Name(terms.Egress), Since: since, LastMinute: 0.9},
		{ID: id("web"), Interface: "eth0", Direction: terms.Name(terms.Ingress)},
		{ID: id("gone"), Interface: "eth0", Direction: terms.Name(terms.Egress), LastMinute: 1},
	}, nil)
	want := []string{`{"atLimitSince":"2026-11-24T14:02:00Z","heldShare":0.9}`, `{"heldShare":0}`, `{}`, `{}`}
	var got []string
	for i := range rep.Attachments {
		for _, d := range rep.Attachments[i].Directions {
			text, err := json.Marshal(d.Reached)
			must.OK(t, err)
			got = append(got, string(text))
		}
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("limit %d has %s, want %s", i, got[i], want[i])
		}
	}
	if l := rep.View(since).Pods[1].Limits[0]; l.HeldShare != 0.9 || l.AtLimitSince != since {
		t.Errorf("the node's view has %+v", l)
	}
}
