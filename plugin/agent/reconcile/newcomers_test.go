// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/testutil"
)

// A pod that starts while the API server is out of reach gets its limit from the runtime's
// ADD. The agent looks at it without waiting for a full pass, and repairs it from then on.
func TestPrivilegedPodOfWhichTheAPIServerDoesNotTell(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	n.api.Close() // it was never reached
	add := func() *pod {
		p := n.newPod(t)
		p.api.Annotations = both("10M", "10M")
		if err := p.call(t, "ADD"); err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := add()
	a := n.start(t, time.Hour)
	a.becomes(t, before, reconcile.Shaped) // by the first pass, and there is no second one
	later, began := add(), time.Now()
	a.becomes(t, later, reconcile.Shaped)
	t.Logf("looked at after %v", time.Since(began).Round(time.Millisecond))
	later.ns.Run(t, "tc", "qdisc", "del", "dev", "eth0", "root")
	testutil.Eventually(t, soon, "the queue is there again", func() bool {
		return strings.Contains(later.ns.Run(t, "tc", "qdisc", "show", "dev", "eth0"), "tbf")
	})
}
