// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package clustertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// Kubectl runs kubectl and returns what it wrote.
func Kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "", args...)
	must.OK(t, err)
	return strings.TrimSpace(out)
}

// Eventually fails the test if something does not succeed in time.
func Eventually(t *testing.T, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	if err := cluster.Eventually(t.Context(), limit, try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Create makes pods and does not wait for them; they are deleted with the test.
func Create(t *testing.T, c *cluster.Cluster, manifests ...map[string]any) {
	t.Helper()
	var names []string
	for _, m := range manifests {
		names = append(names, m["metadata"].(map[string]any)["name"].(string))
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(len(names))*time.Second)
		defer cancel()
		if err := workload.Delete(ctx, c, names...); err != nil {
			t.Error(err)
		}
	})
	must.OK(t, workload.Create(t.Context(), c, manifests...))
}

// Ready waits for a pod that was created.
func Ready(t *testing.T, c *cluster.Cluster, name string) *workload.Pod {
	t.Helper()
	p, err := workload.Ready(t.Context(), c, name)
	must.OK(t, err)
	return p
}

// Install installs podweir with the chart's values of a name and these, or changes
// its values, and waits for the agents.
func Install(t *testing.T, c *cluster.Cluster, chart, values string, set ...string) {
	t.Helper()
	must.OK(t, c.Upgrade(t.Context(), chart, values, set...))
	err := c.Rollout(t.Context())
	if err == nil {
		return
	}
	for _, n := range c.Members {
		_, notReady := n.Fetch(t.Context(), "/readyz")
		t.Logf("%s: %v", n.Name, notReady)
	}
	t.Fatalf("%v\n%s", err, Kubectl(t, c, "-n", cluster.Namespace, "describe", "pods", "-l", "app.kubernetes.io/name=podweir"))
}

// Uninstall returns when the agents are gone. It may be a test's cleanup.
func Uninstall(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	must.OK(t, c.Uninstall(context.WithoutCancel(t.Context())))
}

// Green fails the test if the doctor of a node's agent finds anything.
func Green(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	t.Helper()
	report, err := c.Doctor(t.Context(), n)
	if err != nil {
		t.Errorf("doctor on %s: %v", n.Name, err)
		return
	}
	t.Logf("doctor on %s: %d checks", n.Name, len(report.Checks))
	for _, f := range report.Findings() {
		t.Errorf("doctor on %s: %v", n.Name, f)
	}
}
