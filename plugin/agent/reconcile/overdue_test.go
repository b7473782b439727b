// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/testutil"
)

// TestPrivilegedOverdue has a running pod with a limit whose network cannot be
// found: once for want of an interface and once for want of a sandbox. Its owner
// and the doctor are told after a while, once, and no longer than it lasts.
func TestPrivilegedOverdue(t *testing.T) {
	testutil.RequireRoot(t)
	for name, tc := range map[string]struct {
		lose   func(t *testing.T, p *pod)
		reason string
	}{
		"no interface": {func(t *testing.T, p *pod) {
			t.Helper()
			empty := testutil.NewNetNS(t)
			p.node.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container, NetNSPath: empty.Path(), Interfaces: []string{"dummy0"}})
		}, "dummy0"},
		"no sandbox": {func(_ *testing.T, p *pod) { p.node.sandbox.drop(p.api.UID) }, "no ready sandbox"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.overdue = 300 * time.Millisecond
			p := n.newPod(t)
			tc.lose(t, p)
			p.annotate(both("10M", "20M"))
			a := n.start(t, 100*time.Millisecond)
			a.becomes(t, p, reconcile.Waiting)
			early, err := n.paths.Unshaped()
			if s := a.state(p); err != nil || s.Outcome == reconcile.Waiting && len(early) > 0 {
				t.Errorf("while it waits: %v, %v, want no record yet", early, err)
			}
			s := a.becomes(t, p, reconcile.Overdue)
			e := p.event(t, "BandwidthNotEnforced")
			if !strings.Contains(e.Message, "runs without its limit") || !strings.Contains(e.Message, tc.reason) || s.Err == nil {
				t.Errorf("event %q, error %v, want that the limit is not kept and why", e.Message, s.Err)
			}
			told, err := n.paths.Unshaped()
			if err != nil || len(told) != 1 || told[0].Pod != "default/"+p.api.Name || !strings.Contains(told[0].Error, tc.reason) || told[0].Since.IsZero() {
				t.Errorf("records %+v, %v, want that of the pod", told, err)
			}
			if got := reconcile.Unshaped(a.Snapshot()); got["overdue"] != 1 {
				t.Errorf("unshaped pods are %v, want one that is overdue", got)
			}
			at := a.state(p).At
			testutil.Eventually(t, soon, "a later look", func() bool { return a.state(p).At.After(at) })
			if got := a.state(p); got.Outcome != reconcile.Overdue || !got.Since.Equal(s.Since) {
				t.Errorf("later: %v since %v, want overdue since %v", got.Outcome, got.Since, s.Since)
			}
			if got := len(n.api.Events()); got != 1 {
				t.Errorf("%d events, want one however long it lasts", got)
			}
			n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container, NetNSPath: p.ns.Path(), Interfaces: []string{"eth0"}})
			p.gets(t, "10Mbit", "20Mbit")
			s = a.has(t, p, 2)
			if got, known := reconcile.Unshaped(a.Snapshot())["overdue"]; got != 0 || !known {
				t.Errorf("%d pods are overdue (%v), want a count of 0", got, known)
			}
			if !s.Since.IsZero() {
				t.Errorf("it waits since %v after it is shaped", s.Since)
			}
			testutil.Eventually(t, soon, "the record is gone", func() bool {
				left, err := n.paths.Unshaped()
				return err == nil && len(left) == 0
			})
		})
	}
}

// TestPrivilegedOverdueIsForgotten: what an agent waited for is of no interest
// when the pod is gone, or to the next agent.
func TestPrivilegedOverdueIsForgotten(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNode(t)
	n.overdue = 100 * time.Millisecond
	p := n.newPod(t)
	n.sandbox.drop(p.api.UID)
	p.annotate(both("10M", "20M"))
	records := func() int {
		all, err := n.paths.Unshaped()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	a := n.start(t, 50*time.Millisecond)
	a.becomes(t, p, reconcile.Overdue)
	n.api.Delete(p.api.UID)
	testutil.Eventually(t, soon, "the record goes with the pod", func() bool { return records() == 0 })
	n.api.Put(p.api)
	a.becomes(t, p, reconcile.Overdue)
	a.stop()
	if records() != 1 {
		t.Fatal("the record is gone with the agent")
	}
	n.overdue = time.Hour
	b := n.start(t, 50*time.Millisecond)
	b.becomes(t, p, reconcile.Waiting)
	if records() != 0 {
		t.Error("the next agent keeps the record of the one before it")
	}
}
