// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedIngressOnAnIFB installs a release whose ingress queues belong on an
// ifb, as beside Cilium, on a node where a pod with limits runs already: the agent,
// with the few rights that the chart gives it, is the first to try the kernel.
func TestPrivilegedIngressOnAnIFB(t *testing.T) {
	suite.Uninstall(t)
	early := run(t, "early", 0, workload.Limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	suite.Install(t, "defaults.ingressPlace=prefer-ifb")
	early.limited(t, 20_000_000, 10_000_000)
	early.holds(t, peer, "a pod from before, queued on an ifb", 20_000_000, 10_000_000)
	late := run(t, "late", 0, workload.Limits("10M", "20M"))
	late.holds(t, peer, "a pod from after, queued on an ifb", 10_000_000, 20_000_000)
	out, err := suite.Podweir(t.Context(), early.Node, "status", "-o", "json")
	if n := strings.Count(strings.ReplaceAll(out, " ", ""), `"side":"ifb"`); err != nil || n != 2 {
		t.Errorf("%d pods have their ingress queue on an ifb, want 2 (%v):\n%s", n, err, out)
	}
	for _, p := range []*pod{early, late} {
		list := must.Get(events(t.Context(), p.Name))(t)
		for _, e := range list {
			if e.Type == "Warning" {
				t.Errorf("%s: %s: %s", p.Name, e.Reason, e.Message)
			}
		}
	}
	for _, n := range suite.Members {
		suite.Green(t, n)
	}
}
