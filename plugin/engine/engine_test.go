// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/apply"
	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/mailbox"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Time may run out between any two requests of a step. A first ADD takes away what it
// made, and of a change the next repair makes what was wanted.
func TestPrivilegedTimeRunsOutWithinAStep(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	host, pod := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: host, Name: "veth1"})
	paths := engine.Paths{Pins: filepath.Join(testutil.BPFFS(t), "podweir"), Run: t.TempDir()}
	limit := *shaping.DefaultLimit(10_000_000)
	onIFB := limit
	onIFB.Place, onIFB.Rate = terms.PlaceIFB, 20_000_000
	want := func(l *shaping.Limit) *apply.Want {
		return &apply.Want{
			ID: attach.ID{Network: "net", ContainerID: "c1", IfName: "eth0"}, NetNSPath: pod.Path(), Names: []string{"eth0"},
			Config: &shaping.Config{Egress: l, Ingress: l},
		}
	}
	// do runs f with a node of its own. If left is not negative, requests end so long
	// after the first step has begun.
	do := func(left time.Duration, f func(n *engine.Node) error) error {
		return host.Do(func() error {
			n, err := engine.Open(paths)
			if err != nil {
				return err
			}
			defer n.Close()
			n.Step = func(string) {
				if left >= 0 {
					n.SetDeadline(time.Now().Add(left))
					left = -1
				}
			}
			return f(n)
		})
	}
	ensure := func(left time.Duration, l *shaping.Limit) error {
		return do(left, func(n *engine.Node) error { _, err := n.Ensure(t.Context(), want(l)); return err })
	}
	works := func(what string, left time.Duration, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v left, %s: %v", left, what, err)
		}
	}
	remove := func(n *engine.Node) error { return n.Remove(t.Context(), want(&limit).ID) }
	works("the first ADD", -1, ensure(-1, &limit)) // what is found out once for all
	works("DEL", -1, do(-1, remove))
	late := 0
	// Ever longer: a step takes a millisecond here, and a hundred where a processor is emulated.
	for left := time.Duration(0); ; left = max(50*time.Microsecond, left*3/2) {
		first := ensure(left, &onIFB)
		if first != nil {
			late++
			if !errors.Is(first, rtnl.ErrLate) && !errors.Is(first, rtnl.ErrNoAnswer) {
				t.Fatalf("%v left: %v, want an error that says that it was too late", left, first)
			}
			if step := "egress build-queue"; left == 0 && !strings.Contains(first.Error(), step) {
				t.Errorf("%v left: %v, want it to name %s, the first step with a request", left, first, step)
			}
			works("look for what stayed", left, do(-1, func(n *engine.Node) error {
				ids, err := n.List()
				found, lostErr := n.Lost()
				if len(ids)+len(found) > 0 {
					t.Errorf("%v left: %v stays, and %v, of a first ADD", left, ids, found)
				}
				return errors.Join(err, lostErr)
			}))
		}
		works("ADD", left, ensure(-1, &limit))
		change := ensure(left, &onIFB)
		works("repair", left, do(-1, func(n *engine.Node) error { _, err := n.Repair(t.Context(), want(&limit).ID); return err }))
		works("ADD again", left, ensure(-1, &onIFB))
		works("CHECK", left, do(-1, func(n *engine.Node) error { return n.Check(t.Context(), want(&onIFB)) }))
		works("DEL", left, do(-1, remove))
		if first == nil && change == nil || t.Failed() {
			break
		}
	}
	must.AtLeast(t, "times that it was too late, so that the test looks at something", 5, late)
}

// Only answers are kept: an error is tried again.
func TestPrivilegedErrorsOfTheSelfTestAreNotKept(t *testing.T) {
	testutil.RequireQdisc(t, "ifb")
	paths := engine.Paths{Run: t.TempDir()}
	fails := func() (string, error) { return "", unix.EPERM }
	if way, none, err := paths.Redirect(fails); err != nil || way != "" || !strings.Contains(none, unix.EPERM.Error()) {
		t.Errorf("Redirect() = %q, %q, %v, want the reason of the failure", way, none, err)
	}
	if way, none, err := paths.Redirect(func() (string, error) { return "mirred", nil }); err != nil || way != "mirred" || none != "" {
		t.Errorf("after a failure Redirect() = %q, %q, %v, want mirred", way, none, err)
	}
	if way, _, err := paths.Redirect(fails); err != nil || way != "mirred" {
		t.Errorf("after an answer Redirect() = %q, %v, want mirred, which is kept", way, err)
	}
	// That packets get lost is an answer.
	testutil.Probed(t, paths.Run, map[string]any{"redirect": ""})
	if way, none, err := paths.Redirect(fails); err != nil || way != "" || !strings.Contains(none, "get lost") {
		t.Errorf("Redirect() = %q, %q, %v, want that packets get lost", way, none, err)
	}
}

// Of processes that try at the same time the one whose packets came through is right.
func TestPrivilegedLaterFailureOfTheSelfTest(t *testing.T) {
	testutil.RequireQdisc(t, "ifb")
	for name, fails := range map[string]error{"packets get lost": nil, "no answer": unix.EPERM} {
		paths := engine.Paths{Run: t.TempDir()}
		way, none, err := paths.Redirect(func() (string, error) {
			if way, _, err := paths.Redirect(func() (string, error) { return "bpf", nil }); err != nil || way != "bpf" {
				t.Errorf("the other process: Redirect() = %q, %v, want bpf", way, err)
			}
			return "", fails
		})
		if err != nil || way != "bpf" || none != "" {
			t.Errorf("%s: Redirect() = %q, %q, %v, want the other's bpf", name, way, none, err)
		}
		if way, _, err := paths.Redirect(func() (string, error) { return "", unix.EPERM }); err != nil || way != "bpf" {
			t.Errorf("%s: then Redirect() = %q, %v, want bpf, which is kept", name, way, err)
		}
	}
}

// The kinds of queue are those of the whole device, leaves too, and of no device that is
// not there.
func TestPrivilegedQueueKinds(t *testing.T) {
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	ns, peer := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: peer, Name: "eth0"})
	ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "tbf", "rate", "10mbit", "burst", "40kb", "latency", "25ms")
	ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "parent", "1:1", "pfifo_fast")
	var kinds map[string][]string
	must.OK(t, ns.Do(func() (err error) { kinds, err = engine.Paths{}.QueueKinds([]string{"eth0", "gone"}); return err }))
	if got := kinds["eth0"]; len(kinds) != 1 || !slices.Contains(got, "tbf") || !slices.Contains(got, "pfifo_fast") {
		t.Errorf("QueueKinds = %q, want tbf and pfifo_fast of eth0", kinds)
	}
}

// The queue of the device that a filter sends a pod's packets to is the pod's, as Calico's
// limit of egress is.
func TestPrivilegedQueueBehindARedirect(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	ns := testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "cali1"}, testutil.End{NetNS: testutil.NewNetNS(t), Name: "eth0"})
	ns.Run(t, "ip", "link", "add", "bwcali1", "type", "ifb")
	ns.Run(t, "tc", "qdisc", "add", "dev", "bwcali1", "root", "tbf", "rate", "10mbit", "burst", "40kb", "latency", "25ms")
	ns.Run(t, "tc", "qdisc", "add", "dev", "cali1", "ingress")
	ns.Run(t, "tc", "filter", "add", "dev", "cali1", "ingress", "u32", "match", "u8", "0", "0", "action", "mirred", "egress", "redirect", "dev", "bwcali1")
	var devices []engine.PodDevice
	paths := engine.Paths{Pins: filepath.Join(t.TempDir(), "none"), Run: t.TempDir()}
	must.OK(t, ns.Do(func() (err error) { devices, err = paths.PodDevices(); return err }))
	if len(devices) != 1 || len(devices[0].Egress) != 1 || devices[0].Egress[0].Rate.BitRate() != 10_000_000 || len(devices[0].Tree.Qdiscs) != 0 {
		t.Errorf("PodDevices = %+v, want a queue of 10 Mbit/s for what cali1 receives", devices)
	}
}

// What an agent saw is known as long as it looks: neither before, nor after it ended or
// was killed.
func TestReachedIsKnownWhileTheAgentLooks(t *testing.T) {
	paths := engine.Paths{Run: t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		want := func(when string, want []mailbox.Reached) {
			t.Helper()
			got := must.Get(paths.Mail().Reached())(t)
			must.Match(t, when, want, got)
		}
		seen := []mailbox.Reached{{
			Limit:   mailbox.Limit{ID: attach.ID{Network: "n", ContainerID: "1", IfName: "eth0"}, Interface: "eth0", Direction: terms.Name(terms.Egress)},
			Reached: terms.Reached{AtLimitSince: time.Now().UTC(), HeldShare: new(0.5)},
		}}
		want("before", nil)
		must.OK(t, paths.Mail().RecordReached(seen))
		<-time.After(10 * time.Second)
		want("after 10 s", seen)
		must.OK(t, paths.Mail().TouchReached())
		<-time.After(10 * time.Second)
		want("10 s after another look", seen)
		<-time.After(10 * time.Second)
		want("20 s after it", nil)
		must.OK(t, paths.Mail().RecordReached(seen))
		paths.Mail().ForgetReached()
		want("after the agent ended", nil)
	})
}

// A pod may end after the agent looked. What it recorded is known while it looks: one that
// was killed leaves its record.
func TestUnenforcedOfWhatIsGone(t *testing.T) {
	t.Parallel()
	paths := engine.Paths{Run: t.TempDir()}
	must.OK(t, paths.Mail().RecordReached(nil))
	there, gone := attach.ID{Network: "n", ContainerID: "1", IfName: "eth0"}, attach.ID{Network: "n", ContainerID: "2", IfName: "eth0"}
	paths.Mail().RecordUnenforced(slog.New(slog.DiscardHandler), []mailbox.Unenforced{{ID: gone}, {ID: there}, {ID: gone}})
	all := must.Len(t, "records", 3, must.Get(paths.Mail().Unenforced())(t))
	must.Match(t, "what is attached", []mailbox.Unenforced{{ID: there}}, engine.StillAttached(all, []attach.ID{there}))
	before := time.Now().Add(-time.Minute)
	must.OK(t, os.Chtimes(filepath.Join(paths.Run, "reached.json"), before, before))
	must.Len(t, "records a minute after the agent looked", 0, must.Get(paths.Mail().Unenforced())(t))
}
