// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package divide

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/units"
)

// What a group sent is the sum of its queues, with who sent most, and since when that is the limit.
func TestSumOfAGroup(t *testing.T) {
	queue := func(pod string) *engine.Share {
		return &engine.Share{Namespace: "batch", Pod: "batch/" + pod, Direction: terms.Egress, Group: 80_000_000}
	}
	r := &running{known: map[attach.ID]*joined{
		{ContainerID: "1"}: {shares: map[string]*engine.Share{"one": queue("one")}},
		// A second network of the pod.
		{ContainerID: "1", IfName: "net1"}: {shares: map[string]*engine.Share{"one too": queue("one")}},
		{ContainerID: "2"}: {
			shares:  map[string]*engine.Share{"two": queue("two"), "higher": {Namespace: "batch", Pod: "batch/two", Direction: terms.Egress, Group: 90_000_000}},
			outside: map[string]*engine.Undivided{"in": {Namespace: "batch", Pod: "batch/two", Direction: terms.Ingress, Group: 10_000_000}},
		},
	}}
	begun := time.Unix(1000, 0)
	type report struct {
		namespace string
		after     time.Duration
	}
	var reports []report
	r.onHeld = func(g *mailbox.Group) { reports = append(reports, report{g.Namespace, g.Held.Round(time.Second)}) }
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	told := map[key]*mailbox.Group{}
	for i, one := range []units.Bytes{1_000_000, 7_000_000, 9_000_000, 0} {
		// The loop came by once in two seconds, because the machine was busy.
		told = r.sum(map[string]Sent{"one": {2 * one, 2 * time.Second}, "two": {2_500_000, time.Second}, "in": {}}, told, at(i+1), time.Second)
		g := told[key{"batch", terms.Egress}]
		if atLimit := one >= 6_500_000; g.AtLimitSince.IsZero() == atLimit || atLimit && !g.AtLimitSince.Equal(at(1)) {
			t.Errorf("second %d: at the limit since %v, want that of its first second if it is at it", i, g.AtLimitSince)
		}
	}
	for second := range 1500 { // 25 minutes at the limit, which are told once
		r.groups = r.sum(map[string]Sent{"one": {9_500_000, time.Second}}, r.groups, at(second), time.Second)
		r.reportHeld(at(second), time.Second)
	}
	if len(reports) != 1 || reports[0] != (report{"batch", longHeld}) {
		t.Errorf("told of %v, want of the group once, after ten minutes", reports)
	}
	held := &mailbox.Group{AtLimitSince: begun}
	for after, want := range map[time.Duration]bool{
		longHeld - time.Second: false, longHeld: true, longHeld + 500*time.Millisecond: true, longHeld + time.Second: false, 2 * longHeld: false,
	} {
		if got := longHeldNow(held, begun.Add(after), time.Second); got != want {
			t.Errorf("held for %v: told %v, want %v", after, got, want)
		}
	}
	want := map[key]*mailbox.Group{
		{"batch", terms.Egress}: {
			Namespace: "batch", Direction: terms.Name(terms.Egress), Limit: 80_000_000, Pods: 2, Sent: 20_000_000, Largest: "batch/two", LargestPart: 1,
			SentBytes: 44_000_000, Held: 2 * time.Second,
		},
		{"batch", terms.Ingress}: {Namespace: "batch", Direction: terms.Name(terms.Ingress), Limit: 10_000_000, Outside: []string{"batch/two"}},
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}
