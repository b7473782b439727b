// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/shaping"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
)

// Time may run out between any two requests of a step. A first ADD takes away what it
// made, and of a change the next repair makes what was wanted.
func TestPrivilegedTimeRunsOutWithinAStep(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "ifb", "clsact")
	host, pod := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: pod, Name: "eth0"}, testutil.End{NetNS: host, Name: "veth1"})
	paths := engine.Paths{Pins: filepath.Join(testutil.BPFFS(t), "podweir"), Run: t.TempDir()}
	limit := shaping.Limit{
		Rate: 10_000_000, Horizon: 50 * time.Millisecond, LightShare: 900, HeavyThreshold: 50,
		Policy: terms.PolicyStrict, Queue: terms.QueueAuto, Mode: terms.ModeAuto, Place: terms.PlaceAuto,
	}
	onIFB := limit
	onIFB.Place, onIFB.Rate = terms.PlaceIFB, 20_000_000
	want := func(l *shaping.Limit) *attach.Want {
		return &attach.Want{
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
	must := func(what string, left time.Duration, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v left, %s: %v", left, what, err)
		}
	}
	remove := func(n *engine.Node) error { return n.Remove(t.Context(), want(&limit).ID) }
	must("the first ADD", -1, ensure(-1, &limit)) // what is found out once for all
	must("DEL", -1, do(-1, remove))
	late := 0
	// Ever longer: a step takes a millisecond here, and a hundred where a processor is emulated.
	for left := time.Duration(0); ; left = max(50*time.Microsecond, left*3/2) {
		first := ensure(left, &onIFB)
		if first != nil {
			late++
			if !errors.Is(first, hostif.ErrLate) && !errors.Is(first, hostif.ErrNoAnswer) {
				t.Fatalf("%v left: %v, want an error that says that it was too late", left, first)
			}
			if step := "egress build-queue"; left == 0 && !strings.Contains(first.Error(), step) {
				t.Errorf("%v left: %v, want it to name %s, the first step with a request", left, first, step)
			}
			must("look for what stayed", left, do(-1, func(n *engine.Node) error {
				ids, err := n.List()
				found, lostErr := n.Lost()
				if len(ids)+len(found) > 0 {
					t.Errorf("%v left: %v stays, and %v, of a first ADD", left, ids, found)
				}
				return errors.Join(err, lostErr)
			}))
		}
		must("ADD", left, ensure(-1, &limit))
		change := ensure(left, &onIFB)
		must("repair", left, do(-1, func(n *engine.Node) error { _, err := n.Repair(t.Context(), want(&limit).ID); return err }))
		must("ADD again", left, ensure(-1, &onIFB))
		must("CHECK", left, do(-1, func(n *engine.Node) error { return n.Check(t.Context(), want(&onIFB)) }))
		must("DEL", left, do(-1, remove))
		if first == nil && change == nil || t.Failed() {
			break
		}
	}
	if least := 5; late < least {
		t.Errorf("it was too late %d times, want %d or more: the test looks at nothing", late, least)
	}
}
