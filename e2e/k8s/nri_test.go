// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"strings"
	"testing"

	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedNRI has no CNI configuration and no binary of podweir on any node.
func TestPrivilegedNRI(t *testing.T) {
	suite.Uninstall(t)
	suite.Install(t, "delivery=nri")
	node := suite.Members[0]
	must.Have(t, "the files of CNIs", must.Get(node.Exec(t.Context(), "bash", "-c", "find /etc/cni /opt/cni"))(t), "!podweir")
	peer := run(t, "peer", 1, nil)
	p := run(t, "hooked", 0, workload.Limits("20M", "10M"))
	p.holds(t, peer, "shaped by the runtime's hook", 20_000_000, 10_000_000)
	page := must.Get(node.Fetch(t.Context(), "/metrics"))(t)
	t.Logf("hooks:\n%s", grep(page, "podweir_nri_hook_duration_seconds_count"))
	must.Have(t, "the page of metrics", page, "podweir_nri_hook_duration_seconds_count")
	// The look at running pods would shape it, too, but later, and logs it otherwise.
	log := suite.Kubectl(t, "-n", namespace, "logs", agent(t, node))
	if shaped := grep(grep(log, `"msg":"pod shaped"`), `"pod":"default/`+p.Name+`"`); strings.Count(shaped, `"direction":`) != 2 {
		t.Errorf("the hook did not shape the pod in both directions:\n%s", shaped)
	}
	killAgent(t, p, peer)
	suite.Green(t, node)
	small(t, node)
	suite.Uninstall(t)
	p.holds(t, peer, "after the uninstall", 0, 0)
}
