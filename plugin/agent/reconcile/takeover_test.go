// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile_test

import (
	"testing"

	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/agent/reconcile"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A sandbox in the network namespace of another one gets its limits when the runtime has forgotten the other, and not
// before. The DEL of the other comes late and takes nothing from it.
func TestPrivilegedNamespaceOfAnEndedSandbox(t *testing.T) {
	testutil.RequireQdisc(t, "tbf")
	n := newNode(t)
	first := n.newPod(t)
	first.annotate(both("10M", "10M"))
	must.OK(t, first.call(t, "ADD"))
	n.api.Delete(first.api.UID)
	second := *first
	second.container, second.api.Name, second.api.UID = "sandbox-second", "second", "uid-second"
	n.sandbox.set(second.api.UID, cri.Sandbox{ID: second.container, NetNSPath: second.ns.Path(), Interfaces: []string{"eth0"}})
	a := n.start(t, never)
	second.annotate(both("20M", "20M"))
	a.becomes(t, &second, reconcile.Held)
	second.gets(t, "10Mbit", "10Mbit")
	n.sandbox.drop(first.api.UID)
	a.Again()
	second.gets(t, "20Mbit", "20Mbit")
	must.OK(t, first.call(t, "DEL"))
	if out, in := rate(t, second.ns, "eth0"), rate(t, n.NetNS, second.host.Name); out != "20Mbit" || in != "20Mbit" {
		t.Errorf("after the DEL of the first sandbox the limits are %q and %q", out, in)
	}
	must.OK(t, second.call(t, "CHECK"))
}
