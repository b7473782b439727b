// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil"
)

// TestPrivilegedObserve: what the operator says of a node and a Namespace reaches pods
// that run, there and back. Who takes the program away that observes is no tamperer: it
// is put back.
func TestPrivilegedObserve(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNode(t)
	n.namespaces = 100 * time.Millisecond
	n.configure("enforce", "observe")
	p := n.podIn(t, "team")
	p.annotate(both("10M", "20M"))
	a := n.start(t, never)
	observed := func(when string) {
		t.Helper()
		testutil.Eventually(t, soon, when+" the pod is observed and has no queue", func() bool {
			s := a.state(p)
			return len(s.Limits) == 2 && s.Limits[0].Observed() && s.Limits[1].Observed() && rate(t, p.ns, "eth0") == "" && rate(t, n.NetNS, p.host.Name) == ""
		})
		if status := p.attachment(t); len(status.Drift) != 0 || status.Directions[0].Enforce.Is != terms.EnforceObserve {
			t.Errorf("%s status has drift %v and %+v, want none and observe", when, status.Drift, status.Directions)
		}
	}
	observed("at first,")
	if e := p.event(t, "BandwidthObserved"); e.Type != "Normal" || !strings.Contains(e.Message, "nothing is held") {
		t.Errorf("event %+v, want news that nothing is held", e)
	}
	for range 4 { // three are tampering where a limit is enforced
		p.ns.Run(t, "tc", "filter", "del", "dev", "eth0", "egress")
		testutil.Eventually(t, soon, "the program is back", func() bool {
			return strings.Contains(p.ns.Run(t, "tc", "filter", "show", "dev", "eth0", "egress"), "pw_police")
		})
	}
	if s := a.state(p); len(s.Tampered) != 0 {
		t.Errorf("tampering %+v, want none: there is no limit to take away", s.Tampered)
	}
	n.api.PutNamespace("team", map[string]string{"podweir.io/enforce": "limit"})
	p.gets(t, "10Mbit", "20Mbit")
	n.api.PutNamespace("team", nil)
	observed("without the annotation,")
	n.configure("enforce", "limit")
	a.Again()
	p.gets(t, "10Mbit", "20Mbit")
}
