// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/status/view"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestYoungAttachmentsAreLeftOut(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		attached time.Time
		young    time.Duration
		kept     bool
	}{
		"being made":                         {now, Young, false},
		"a moment before it is old enough":   {now.Add(-Young + time.Millisecond), Young, false},
		"old enough":                         {now.Add(-Young), Young, true},
		"a day old":                          {now.Add(-24 * time.Hour), Young, true},
		"made before the clock was set back": {now.Add(time.Hour), Young, true},
		"of a release that did not say":      {time.Time{}, Young, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, young := apart([]Attachment{{Attached: tc.attached}}, now, tc.young)
			must.Be(t, "limits of one attachment, old and young", 1, len(got)+len(young))
			must.Be(t, "kept", tc.kept, len(got) == 1)
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
		if i == id("busy") || i == id("hanging") {
			return nil, errors.New("another party has it")
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
	changing := func(a *Attachment) bool { return a.ID == id("busy") }
	got, busy := settled(t.Context(), []Attachment{
		seen("fine", ""), seen("being-made", "no queue"), seen("being-made", "no program"), seen("ended", "no queue"),
		seen("broken", "limit is 10M, want 20M"), seen("busy", "no queue"), seen("hanging", "no queue"),
		{ID: id("unread"), Error: "half a record"},
	}, lock, again, changing)
	must.Match(t, "looked at once more", []string{"being-made", "ended", "broken", "unread"}, looked)
	if want := []attach.ID{id("broken"), id("hanging")}; !equalSets(differing(got), want) {
		t.Errorf("differing after all: %v, want %v", differing(got), want)
	}
	if want := []attach.ID{id("busy")}; !equalSets(busy, want) {
		t.Errorf("left out as being changed: %v, want %v", busy, want)
	}
	must.Len(t, "attachments", 5, got)
	must.Be(t, "locks held", 0, len(held))
}

func equalSets(a, b []attach.ID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(i attach.ID) bool { return !slices.Contains(b, i) })
}

// What the program drops comes before the queue, and is offered all the same; what the
// ceiling drops went past the program.
func TestCounters(t *testing.T) {
	t.Parallel()
	got := counters(&Direction{Counters: []datapath.Counter{
		{Disposition: "light", Packets: 1, Bytes: 100},
		{Disposition: "paced", Packets: 2, Bytes: 3000},
		{Disposition: "exempt", Packets: 1, Bytes: 7},
		{Disposition: "dropped-horizon", Packets: 3, Bytes: 4500},
		{Disposition: "dropped-ceiling", Packets: 5, Bytes: 7500},
	}})
	want := view.Counters{SentBytes: 3107, LightBytes: 100, HeavyBytes: 3000, ExemptBytes: 7, DroppedBytes: 4500, Drops: 8}
	must.Match(t, "counters", want, got)
}

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
	reached := func(container string, d terms.Direction, since time.Time, share float64) mailbox.Reached {
		return mailbox.Reached{Limit: mailbox.Limit{ID: id(container), Interface: "eth0", Direction: terms.Name(d)}, Reached: terms.Reached{AtLimitSince: since, HeldShare: &share}}
	}
	rep := Report{Attachments: []Attachment{one("web", "eth0", terms.Egress, terms.Ingress), one("web", "net1", terms.Egress), one("api", "eth0", terms.Egress)}}
	addReached(rep.Attachments, []mailbox.Reached{
		reached("web", terms.Egress, since, 0.9),
		reached("web", terms.Ingress, time.Time{}, 0),
		reached("gone", terms.Egress, time.Time{}, 1),
	}, nil)
	want := []string{`{"atLimitSince":"2026-11-24T14:02:00Z","heldShare":0.9}`, `{"heldShare":0}`, `{}`, `{}`}
	var got []string
	for i := range rep.Attachments {
		for _, d := range rep.Attachments[i].Directions {
			text := must.Get(json.Marshal(d.Reached))(t)
			got = append(got, string(text))
		}
	}
	for i := range want {
		must.Be(t, fmt.Sprintf("limit %d", i), want[i], got[i])
	}
	if l := rep.View(since).Pods[1].Limits[0]; l.HeldShare == nil || *l.HeldShare != 0.9 || l.AtLimitSince != since {
		t.Errorf("the node's view has %+v", l)
	}
}

// Who takes a limit away is a value that travels with the record, whatever words the agent
// tells its cause in.
func TestUnenforcedNamesTheTaker(t *testing.T) {
	for by, want := range map[mailbox.Taker]string{
		mailbox.TakerPod:  "and holds; likely cause: a process in the pod that has CAP_NET_ADMIN, or software on the node",
		mailbox.TakerNode: "and holds; likely cause: software on the node",
	} {
		u := &mailbox.Unenforced{
			Pod: "ns/web", Limit: terms.Limit{Direction: terms.Name(terms.Egress)}, Reason: mailbox.ReasonTampered, Held: true,
			Likely: mailbox.Likely{Cause: mailbox.CauseTaken, TakenBy: by},
		}
		if _, got := unenforced(u); !strings.HasSuffix(got, want) {
			t.Errorf("taken by %q: %q, want %q at its end", by, got, want)
		}
	}
}

// A record that cannot be read is one problem: what is on its interface is no second one.
// What else has no record still is.
func TestWithoutUnread(t *testing.T) {
	t.Parallel()
	lost := func(name, netns string) engine.Lost {
		return engine.Lost{Interface: attach.Interface{PodName: name, NetNSPath: netns}}
	}
	id := attach.ID{ContainerID: "c1", IfName: "eth0"}
	unread := Attachment{ID: id, Error: "unknown record: version 99"}
	gone := Attachment{ID: id, Interface: attach.Interface{PodName: "eth0"}, Error: "the pod is gone", Gone: true}
	all := []engine.Lost{lost("net1", "/run/netns/a"), lost("eth0", "/run/netns/a"), lost("eth0", "/run/netns/b")}
	for name, c := range map[string]struct {
		has  []Attachment
		want []string
	}{
		"all are read":                 {[]Attachment{{ID: id}, gone}, []string{"net1 in /run/netns/a", "eth0 in /run/netns/a", "eth0 in /run/netns/b"}},
		"one is not":                   {[]Attachment{unread}, []string{"net1 in /run/netns/a", "eth0 in /run/netns/b"}},
		"one beside another interface": {[]Attachment{{ID: id, Interface: attach.Interface{PodName: "eth1", NetNSPath: "/run/netns/b"}}, unread}, []string{"net1 in /run/netns/a", "eth0 in /run/netns/a"}},
		"two are not":                  {[]Attachment{unread, unread, unread}, []string{"net1 in /run/netns/a"}},
	} {
		var got []string
		rest, _ := withoutUnread(append([]engine.Lost{}, all...), c.has)
		for _, l := range rest {
			got = append(got, l.Name())
		}
		must.Match(t, name, c.want, got)
	}
}

// What podweir-cni and the agent say of one pod in the same words is one trouble.
func TestFailuresAreToldOnce(t *testing.T) {
	t.Parallel()
	r := &Report{
		Failures: []mailbox.Failure{{Pod: "ns/both", Error: "no rate"}, {ID: attach.ID{ContainerID: "c1"}, Pod: "ns/plugin", Error: "no rate"}},
		Unshaped: []mailbox.Unshaped{{Pod: "ns/both", Error: "no rate"}, {Pod: "ns/both", Error: "no sandbox"}, {Pod: "ns/host", Reason: mailbox.ReasonHostNetwork}},
	}
	var got []string
	for _, x := range r.Troubles(time.Now()) {
		got = append(got, fmt.Sprint(x.Fault, " ", x.Pod, " ", x.Container, " ", x.Causes))
	}
	must.Match(t, "troubles", []string{"1 ns/both  [no rate]", "1 ns/both  [no sandbox]", "2 ns/host  []", "1 ns/plugin c1 [no rate]"}, got)
}

// The doctor is told all that is wrong with an attachment, each thing by its cause. Status shows the first.
func TestTroublesOfAnAttachment(t *testing.T) {
	t.Parallel()
	starved := []Direction{{Limit: terms.Limit{Direction: terms.Name(terms.Ingress)}, Starved: "u32 ends the chain"}}
	differs := []string{"no root qdisc", "no ifb"}
	unheld := &attach.Inspection{Unheld: errors.New("podweir cannot go ahead of it")}
	for name, tc := range map[string]struct {
		a     Attachment
		want  []terms.Fault
		state view.State
	}{
		"nothing":                      {Attachment{}, nil, view.Limited},
		"another device has its name":  {Attachment{Gone: true, Error: "gone", Interface: attach.Interface{NamesakeIndex: 7}}, []terms.Fault{terms.FaultUncovered}, view.NotLimited},
		"its pod is gone":              {Attachment{Gone: true, Error: "gone"}, []terms.Fault{terms.FaultLeft}, view.Unknown},
		"its pod may be gone":          {Attachment{Left: "its host end", Error: "not known"}, []terms.Fault{terms.FaultLeft}, view.Unknown},
		"it cannot be read":            {Attachment{Error: "version 99"}, []terms.Fault{terms.FaultUnread}, view.Unknown},
		"nor is anything kept":         {Attachment{Error: "version 99", starved: "u32 ends the chain"}, []terms.Fault{terms.FaultPast, terms.FaultUnread}, view.NotLimited},
		"it differs":                   {Attachment{Error: "gone", Drift: differs}, []terms.Fault{terms.FaultDiffers}, view.Differs},
		"it is starved":                {Attachment{Directions: starved, Drift: differs}, []terms.Fault{terms.FaultPast, terms.FaultDiffers}, view.NotLimited},
		"it is starved for good":       {Attachment{Directions: starved, inspection: unheld}, []terms.Fault{terms.FaultUnshaped}, view.NotLimited},
		"and the agent has said so":    {Attachment{Directions: starved, inspection: unheld, Pod: "ns/told"}, []terms.Fault{terms.FaultPast, terms.FaultUnshaped}, view.NotLimited},
		"it is past, and not whole":    {Attachment{Directions: []Direction{{Bypassed: "eBPF"}}, Drift: differs}, []terms.Fault{terms.FaultPast, terms.FaultDiffers}, view.NotLimited},
		"a device beside, and differs": {Attachment{Beside: "net1", Drift: differs}, []terms.Fault{terms.FaultUncovered, terms.FaultDiffers}, view.NotLimited},
	} {
		r := &Report{Attachments: []Attachment{tc.a}}
		if tc.a.Pod != "" {
			r.Unshaped = []mailbox.Unshaped{{Pod: tc.a.Pod, Error: "it ends the chain"}}
		}
		var got []terms.Fault
		for _, x := range r.Troubles(time.Now()) {
			got = append(got, x.Fault)
		}
		must.Match(t, name, tc.want, got)
		must.Be(t, name, tc.state, r.View(time.Now()).Pods[0].State)
	}
}
