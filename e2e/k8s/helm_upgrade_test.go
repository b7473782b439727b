// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"testing"

	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedHelmUpgrade upgrades releases with a field that was edited by hand:
// one that Helm 3 made is upgraded by Helm 3 and by Helm 4, and of one that Helm 4 made
// the field is taken back as docs/howto/install-with-helm.md says. A pod keeps its limits
// all along.
func TestPrivilegedHelmUpgrade(t *testing.T) {
	suite.Uninstall(t)
	old := suite.Helm3
	t.Cleanup(func() { suite.Helm3 = old })
	p := run(t, "kept", 0, workload.Limits("20M", "10M"))

	suite.Helm3 = true
	suite.Install(t)
	p.limited(t, 20_000_000, 10_000_000)
	for _, c := range []struct {
		helm3 bool
		share string
	}{{true, "50%"}, {false, "100%"}} {
		suite.Helm3 = c.helm3
		editByHand(t)
		suite.Upgrade(t, mostAway+c.share)
		atMostAway(t, c.share)
	}
	p.limited(t, 20_000_000, 10_000_000)

	suite.Uninstall(t)
	suite.Install(t)
	editByHand(t)
	err := suite.Cluster.Upgrade(t.Context(), chart, "generic", mostAway+"50%")
	must.Fail(t, "an upgrade by Helm 4 of a release with a field that was edited by hand", err, "conflict")
	_ = must.Get(suite.Helm(t.Context(), "upgrade", "podweir", chart, "-n", namespace, "--reset-then-reuse-values", "--force-conflicts", "--set", mostAway+"50%"))(t)
	atMostAway(t, "50%")
	must.OK(t, suite.Rollout(t.Context()))
	p.limited(t, 20_000_000, 10_000_000)
}

// mostAway is a value whose field in the DaemonSet replaces no agent when it changes.
const mostAway = "updateStrategy.rollingUpdate.maxUnavailable="

// editByHand changes that field as kubectl edit does.
func editByHand(t *testing.T) {
	t.Helper()
	suite.Kubectl(t, "-n", namespace, "patch", "daemonset", "podweir", "--field-manager=kubectl-edit",
		"--patch", `{"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}}}}`)
	atMostAway(t, "10%")
}

// atMostAway wants the field to have a value.
func atMostAway(t *testing.T, want string) {
	t.Helper()
	got := suite.Kubectl(t, "-n", namespace, "get", "daemonset", "podweir", "-o", "jsonpath={.spec.updateStrategy.rollingUpdate.maxUnavailable}")
	must.Be(t, "maxUnavailable", want, got)
}
