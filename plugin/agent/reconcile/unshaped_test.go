// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// recorded waits until status and the doctor know of so many pods without a limit, by
// the agent and by podweir-cni, each of them by a cause with this text in it.
func (n *node) recorded(t *testing.T, agents, failures int, cause string) {
	t.Helper()
	var seen []string
	defer func() {
		if t.Failed() {
			t.Logf("recorded %q, want %d of the agent and %d of podweir-cni with %q", seen, agents, failures, cause)
		}
	}()
	testutil.Eventually(t, soon, "records of pods without a limit", func() bool {
		seen = nil
		told := must.Get(n.paths.Mail().Unshaped())(t)
		for _, u := range told {
			seen = append(seen, u.Error)
		}
		failed := must.Get(n.paths.Mail().Failures())(t)
		for _, f := range failed {
			seen = append(seen, f.Error)
		}
		return len(told) == agents && len(failed) == failures && !slices.ContainsFunc(seen, func(text string) bool { return !strings.Contains(text, cause) })
	})
}

// unshaped are the records of the agent, of so many pods.
func (n *node) unshaped(t *testing.T, pods int) []mailbox.Unshaped {
	t.Helper()
	return must.Len(t, "unshaped", pods, must.Get(n.paths.Mail().Unshaped())(t))
}

// A running pod that gets a rate which cannot be read is known to run without its limit
// until the rate is corrected; one that keeps the limit from before does not.
func TestPrivilegedBadRateIsRecorded(t *testing.T) {
	n := newNode(t)
	p, kept := n.newPod(t), n.newPod(t)
	p.annotate(nil)
	kept.annotate(both("10M", "20M"))
	a := n.start(t, never)
	a.becomes(t, p, reconcile.Unlimited)
	kept.gets(t, "10Mbit", "20Mbit")

	kept.annotate(both("fast", "20M"))
	a.becomes(t, kept, reconcile.Invalid)
	n.recorded(t, 0, 0, "")
	p.annotate(map[string]string{"podweir.io/egress-rate": "fast"})
	s := a.becomes(t, p, reconcile.Invalid)
	n.recorded(t, 1, 0, `podweir.io/egress-rate: "fast" is not accepted`)
	must.Be(t, "invalid pods", 1, reconcile.Unshaped(a.Snapshot())["invalid"])
	must.Match(t, "what the pod asks for", []terms.Direction{terms.Egress}, s.Asked)
	told := n.unshaped(t, 1)[0]
	if told.Pod != "default/"+p.api.Name || told.Reason != "invalid" || told.Since.After(s.At) {
		t.Fatalf("record %+v, want that of the pod since %v", told, s.At)
	}
	a.Again()
	testutil.Eventually(t, soon, "a later look", func() bool { return a.state(p).At.After(s.At) })
	must.Match(t, "since when, at a later look", told.Since, n.unshaped(t, 1)[0].Since)
	p.annotate(map[string]string{"podweir.io/egress-rate": "30M"})
	p.gets(t, "30Mbit", "")
	n.recorded(t, 0, 0, "")
}

// A pod that misspelt the annotation is known to run without its limit, also where that is of
// one direction alone. One that asks for it in another way is not.
func TestPrivilegedMisspeltAnnotationIsRecorded(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(map[string]string{"kubernetes.io/egress-bandwdth": "10M"})
	a := n.start(t, never)
	n.recorded(t, 1, 0, "misspelt: kubernetes.io/egress-bandwdth, did you mean kubernetes.io/egress-bandwidth?")
	p.event(t, "BandwidthInvalid")
	must.Be(t, "invalid pods", 1, reconcile.Unshaped(a.Snapshot())["invalid"])
	p.annotate(map[string]string{egress: "10M", "kubernetes.io/ingres-bandwidth": "20M"})
	p.gets(t, "10Mbit", "")
	n.recorded(t, 1, 0, "misspelt: kubernetes.io/ingres-bandwidth")
	must.Match(t, "what the pod asks for", terms.Directions[:], a.state(p).Asked)
	// The limit that it has is looked after as any other.
	a.has(t, p, 1)
	p.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	p.gets(t, "10Mbit", "")
	a.has(t, p, 1)
	testutil.Eventually(t, soon, "a log of what was mended", func() bool { return strings.Contains(n.log.String(), "outcome=mended") })
	must.Have(t, "the log", n.log.String(), "misspelt: kubernetes.io/ingres-bandwidth")
	n.recorded(t, 1, 0, "misspelt: kubernetes.io/ingres-bandwidth")
	p.annotate(map[string]string{egress: "10M", "podweir.io/ingress-rate": "20M", "kubernetes.io/ingres-bandwidth": "30M"})
	p.gets(t, "10Mbit", "20Mbit")
	n.recorded(t, 0, 0, "")
}

// A direction that a pod misspelt and that is limited by hand has its limit.
func TestPrivilegedMisspeltAnnotationOfAPodLimitedByHand(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t)
	open := n.open(t)
	defer open.Close()
	ns := must.Get(rtnl.OpenNetNS(p.ns.Path()))(t)
	defer func() { _ = ns.Close() }()
	entry := must.Get(n.netconf())(t)
	conf := must.Get(netconf.ParseEntry(entry, netconf.KeepAnnotations(map[string]string{egress: "10M"}), netconf.Namespace{}))(t)
	must.OK(t, n.Do(func() error {
		_, err := open.Ensure(t.Context(), &apply.Want{
			ID: engine.ManualID(ns.Inode(), "eth0"), NetNSPath: p.ns.Path(), Names: []string{"eth0"}, Config: &conf.Shaping, By: apply.ByHand,
		})
		return err
	}))
	p.annotate(map[string]string{"kubernetes.io/egress-bandwdth": "10M"})
	a := n.start(t, never)
	a.becomes(t, p, reconcile.Unlimited)
	n.recorded(t, 0, 0, "")
	p.annotate(map[string]string{"kubernetes.io/ingres-bandwidth": "10M"})
	n.recorded(t, 1, 0, "kubernetes.io/ingres-bandwidth")
}

// What podweir-cni could not read stays recorded while the agent keeps the other direction. A default of the node
// takes its place.
func TestPrivilegedBadRateAtADDStaysRecorded(t *testing.T) {
	n := newNode(t)
	n.configure("onError", "open")
	p := n.newPod(t)
	p.annotate(both("fast", "20M"))
	must.OK(t, p.call(t, "ADD"))
	n.recorded(t, 0, 1, `"fast" is not accepted`)
	a := n.start(t, 200*time.Millisecond)
	a.becomes(t, p, reconcile.Invalid)
	n.recorded(t, 1, 1, `"fast" is not accepted`)
	p.told(t, "BandwidthInvalid", `annotation kubernetes.io/egress-bandwidth: "fast" is not accepted`, "the other direction is limited")
	p.gets(t, "", "20Mbit")
	n.configure("egressRate", "5M")
	p.gets(t, "5Mbit", "20Mbit")
	p.told(t, "BandwidthSettingIgnored", `"fast"`)
	p.annotate(both("10M", "20M"))
	p.gets(t, "10Mbit", "20Mbit")
	n.recorded(t, 0, 0, "")
}

// fails records of a pod's interface that it could not be limited.
func (p *pod) fails(container, ifName string) {
	id := attach.ID{Network: "net", ContainerID: container, IfName: ifName}
	p.node.paths.Mail().RecordFailure(slog.New(slog.DiscardHandler), &mailbox.Failure{ID: id, Pod: p.api.Namespace + "/" + p.api.Name, Error: ifName + " failed"})
}

// What could not be limited is no failure any more when no limit is requested, or another
// shaper has it. Only the first interface is the agent's to judge.
func TestPrivilegedFailureOfAPodWithoutALimitEnds(t *testing.T) {
	n := newNode(t)
	p, left := n.newPod(t), n.newPod(t)
	p.fails(p.container, "eth0")
	p.fails("sandbox-before", "eth0")
	p.fails(p.container, "net1")
	left.fails(left.container, "eth0")
	n.configure("shaper", "cilium")
	p.annotate(nil)
	left.annotate(both("10M", "20M"))
	a := n.start(t, never)
	a.becomes(t, p, reconcile.Unlimited)
	a.becomes(t, left, reconcile.Deferred)
	n.recorded(t, 0, 1, "net1")
}

// What the agent could not limit is no failure any more when the pod is gone, of which
// nobody tells but the API server and the runtime.
func TestPrivilegedFailureEndsWithThePod(t *testing.T) {
	n := newNode(t)
	n.configure("egressQueue", "tbf")
	n.withoutTCX(t)
	p, finished := n.newPod(t), n.newPod(t)
	for _, each := range []*pod{p, finished} {
		each.refuse(t)
		each.annotate(map[string]string{egress: "10M"})
	}
	a := n.start(t, 100*time.Millisecond)
	a.becomes(t, p, reconcile.Refused)
	a.becomes(t, finished, reconcile.Refused)
	n.recorded(t, 2, 2, "htb")
	// One that has ended is in the API for as long as its Job, and so is its sandbox.
	finished.api.Phase = "Succeeded"
	n.api.Put(finished.api)
	n.recorded(t, 1, 1, "htb")
	n.api.Delete(p.api.UID)
	n.recorded(t, 0, 1, "htb")
	<-time.After(500 * time.Millisecond)
	n.recorded(t, 0, 1, "htb") // its sandbox may run
	n.sandbox.drop(p.api.UID)
	n.recorded(t, 0, 0, "")
}

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
			n.overdue = time.Second // a busy machine must see that it waits
			p := n.newPod(t)
			tc.lose(t, p)
			p.api.Stopped = true // no container of it runs: the kubelet has yet to make its sandbox
			p.annotate(both("10M", "20M"))
			a := n.start(t, 100*time.Millisecond)
			began := a.becomes(t, p, reconcile.Waiting).At
			testutil.Eventually(t, soon, "a look after it would be overdue", func() bool { return a.state(p).At.Sub(began) > 2*n.overdue })
			if s := a.state(p); s.Outcome != reconcile.Waiting || len(n.api.Events()) != 0 {
				t.Errorf("a pod that does not run is %v, with the events %v", s.Outcome, n.api.Events())
			}
			p.api.Stopped = false
			n.api.Put(p.api)
			early, err := n.paths.Mail().Unshaped()
			if s := a.state(p); err != nil || s.Outcome == reconcile.Waiting && len(early) > 0 {
				t.Errorf("while it waits: %v, %v, want no record yet", early, err)
			}
			s := a.becomes(t, p, reconcile.Overdue)
			p.told(t, "BandwidthNotEnforced", "runs without its limit", tc.reason)
			must.Fail(t, "the state", s.Err)
			if told := n.unshaped(t, 1)[0]; told.Pod != "default/"+p.api.Name || !strings.Contains(told.Error, tc.reason) || told.Since.IsZero() {
				t.Errorf("record %+v, want that of the pod", told)
			}
			must.Be(t, "overdue pods", 1, reconcile.Unshaped(a.Snapshot())["overdue"])
			at := a.state(p).At
			testutil.Eventually(t, soon, "a later look", func() bool { return a.state(p).At.After(at) })
			if got := a.state(p); got.Outcome != reconcile.Overdue || !got.Since.Equal(s.Since) {
				t.Errorf("later: %v since %v, want overdue since %v", got.Outcome, got.Since, s.Since)
			}
			must.Be(t, "events, however long it lasts", 1, len(n.api.Events()))
			n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container, NetNSPath: p.ns.Path(), Interfaces: []string{"eth0"}})
			p.gets(t, "10Mbit", "20Mbit")
			s = a.has(t, p, 2)
			if got, known := reconcile.Unshaped(a.Snapshot())["overdue"]; got != 0 || !known {
				t.Errorf("%d pods are overdue (%v), want a count of 0", got, known)
			}
			must.Match(t, "since when it waits after it is shaped", time.Time{}, s.Since)
			n.recorded(t, 0, 0, "")
		})
	}
}

// TestPrivilegedEndedIsNotOverdue: the kubelet takes a static pod that was changed away, and its mirror in the API server,
// which has it running, some ten seconds later.
func TestPrivilegedEndedIsNotOverdue(t *testing.T) {
	n := newNode(t)
	n.overdue = 100 * time.Millisecond
	p := n.newPod(t)
	n.sandbox.set(p.api.UID, cri.Sandbox{ID: p.container})
	p.annotate(both("10M", "20M"))
	a := n.start(t, 50*time.Millisecond)
	began := a.becomes(t, p, reconcile.Waiting).At
	testutil.Eventually(t, soon, "a look after it would be overdue", func() bool { return a.state(p).At.Sub(began) > 3*n.overdue })
	if s := a.state(p); s.Outcome != reconcile.Waiting || len(n.api.Events()) != 0 {
		t.Errorf("a pod that ended is %v, with the events %v", s.Outcome, n.api.Events())
	}
	n.sandbox.drop(p.api.UID)
	a.becomes(t, p, reconcile.Overdue)
}

// TestPrivilegedOverdueIsForgotten: what an agent waited for is of no interest
// when the pod is gone, or to the next agent.
func TestPrivilegedOverdueIsForgotten(t *testing.T) {
	n := newNode(t)
	n.overdue = 100 * time.Millisecond
	p := n.newPod(t)
	n.sandbox.drop(p.api.UID)
	p.annotate(both("10M", "20M"))
	a := n.start(t, 50*time.Millisecond)
	a.becomes(t, p, reconcile.Overdue)
	n.api.Delete(p.api.UID)
	n.recorded(t, 0, 0, "")
	n.api.Put(p.api)
	a.becomes(t, p, reconcile.Overdue)
	a.stop()
	n.unshaped(t, 1)
	n.overdue = time.Hour
	b := n.start(t, 50*time.Millisecond)
	b.becomes(t, p, reconcile.Waiting)
	n.unshaped(t, 0)
}
