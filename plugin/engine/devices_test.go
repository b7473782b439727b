// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine_test

import (
	"slices"
	"testing"

	"github.com/podweir/podweir/plugin/engine"
	"github.com/podweir/podweir/plugin/testutil"
)

// The kinds of queue are those of the whole device, leaves too, and of no device that is
// not there.
func TestPrivilegedQueueKinds(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf", "pfifo_fast")
	ns, peer := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.VethPair(t, testutil.End{NetNS: ns, Name: "eth0"}, testutil.End{NetNS: peer, Name: "eth0"})
	ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "tbf", "rate", "10mbit", "burst", "40kb", "latency", "25ms")
	ns.Run(t, "tc", "qdisc", "add", "dev", "eth0", "parent", "1:1", "pfifo_fast")
	var kinds map[string][]string
	if err := ns.Do(func() (err error) { kinds, err = engine.Paths{}.QueueKinds([]string{"eth0", "gone"}); return err }); err != nil {
		t.Fatal(err)
	}
	if got := kinds["eth0"]; len(kinds) != 1 || !slices.Contains(got, "tbf") || !slices.Contains(got, "pfifo_fast") {
		t.Errorf("QueueKinds = %q, want tbf and pfifo_fast of eth0", kinds)
	}
}
