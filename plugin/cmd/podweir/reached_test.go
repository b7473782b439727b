// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/status"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
)

// status says for how much of the last minute a pod was at its limit, as its agent saw it;
// without one nothing is said of that, unless packets were dropped.
func TestPrivilegedStatusSaysHowLongALimitIsReached(t *testing.T) {
	testutil.RequireRoot(t)
	c := newCLI(t)
	c.must(t, append(c.netns(), "attach", "--egress", "10M", "--ingress", "10M")...)
	wide := func(when string, parts ...string) {
		t.Helper()
		out := c.must(t, "status", "-o", "wide")
		for _, part := range parts {
			if !strings.Contains(out, "at its limit: "+part) {
				t.Errorf("%s status -o wide has no %q:\n%s", when, part, out)
			}
		}
	}
	if out := c.must(t, "status", "-o", "wide"); strings.Contains(out, "at its limit") {
		t.Errorf("without an agent, and without drops, status says something of it:\n%s", out)
	}
	a := parse[status.Report](t, c, "status").Attachments[0]
	if d := a.Directions[0]; d.HeldShare != nil {
		t.Errorf("without an agent heldShare is %v", *d.HeldShare)
	}
	paths, since := engine.Paths{Run: c.run}, time.Now().UTC().Truncate(time.Second)
	if err := paths.RecordReached([]engine.Reached{
		{ID: a.ID, Interface: "eth0", Direction: terms.Name(terms.Egress), Since: since, LastMinute: 0.5}, {ID: a.ID, Interface: "eth0", Direction: terms.Name(terms.Ingress)},
	}); err != nil {
		t.Fatal(err)
	}
	wide("beside an agent", "50 % of the last minute, since "+since.Format(time.RFC3339), "0 % of the last minute")
	for i, want := range []float64{0.5, 0} {
		if d := parse[status.Report](t, c, "status").Attachments[0].Directions[i]; d.HeldShare == nil || *d.HeldShare != want {
			t.Errorf("beside an agent heldShare of %s is %v, want %v", d.Direction, d.HeldShare, want)
		}
	}
	paths.ForgetReached()
	// 2 MB in a moment are more than a queue of 10 Mbit/s holds.
	c.sendUDP(t, 2_000, 1_000)
	wide("after the agent, with drops", "it was: ")
}
