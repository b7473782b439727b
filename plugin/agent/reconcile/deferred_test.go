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

// TestPrivilegedLimitsLeftToCilium: the node's entry leaves annotations to
// Cilium's bandwidth manager while pods run, one direction first.
func TestPrivilegedLimitsLeftToCilium(t *testing.T) {
	testutil.RequireRoot(t)
	n := newNode(t)
	p := n.newPod(t)
	p.annotate(both("10M", "20M"))
	a := n.start(t, 200*time.Millisecond)
	p.gets(t, "10Mbit", "20Mbit")

	n.configure("egressShaper", "cilium")
	p.gets(t, "", "20Mbit")
	a.has(t, p, 1)
	att := p.attachment(t)
	if att == nil || !strings.Contains(strings.Join(att.Notes, " "), "10 Mbit/s of egress is left to Cilium's bandwidth manager") {
		t.Errorf("status tells %+v, want a note of what is left to Cilium", att)
	}
	if len(att.Drift) > 0 {
		t.Errorf("what is left to Cilium is a difference: %v", att.Drift)
	}

	n.configure("ingressShaper", "cilium")
	p.gets(t, "", "")
	s := a.becomes(t, p, reconcile.Deferred)
	if !strings.Contains(s.Reason, "10 Mbit/s of egress is left") || !strings.Contains(s.Reason, "20 Mbit/s of ingress is left") || s.Err != nil {
		t.Errorf("state %+v, want both directions left to Cilium", s)
	}
	if att := p.attachment(t); att != nil {
		t.Errorf("with all limits left to Cilium there is %+v", att)
	}

	n.configure("shaper", "podweir")
	n.configure("egressShaper", nil)
	n.configure("ingressShaper", nil)
	p.gets(t, "10Mbit", "20Mbit")
}
