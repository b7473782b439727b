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

// Eventually fails the test if something does not succeed in time.
func Eventually(t *testing.T, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	if err := cluster.Eventually(t.Context(), limit, try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Kubectl runs kubectl and returns what it wrote.
func (s *Suite) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSpace(must.Get(s.Cluster.Kubectl(t.Context(), "", args...))(t))
}

// Undo runs kubectl when the test ends, whose context has ended by then.
func (s *Suite) Undo(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() { must.OK(t, must.Err(s.Cluster.Kubectl(context.WithoutCancel(t.Context()), "", args...))) })
}

// Create makes pods and does not wait for them; they are deleted with the test.
func (s *Suite) Create(t *testing.T, manifests ...map[string]any) {
	t.Helper()
	var names []string
	for _, m := range manifests {
		names = append(names, m["metadata"].(map[string]any)["name"].(string))
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(len(names))*time.Second)
		defer cancel()
		if err := workload.Delete(ctx, s.Cluster, names...); err != nil {
			t.Error(err)
		}
	})
	must.OK(t, workload.Create(t.Context(), s.Cluster, manifests...))
}

// Run makes a pod, which is deleted with the test, and waits for it.
func (s *Suite) Run(t *testing.T, manifest map[string]any) *workload.Pod {
	t.Helper()
	s.Create(t, manifest)
	return must.Get(workload.Ready(t.Context(), s.Cluster, manifest["metadata"].(map[string]any)["name"].(string)))(t)
}

// Upgrade brings podweir's release to these values, from whatever it is. It does not wait
// for agents.
func (s *Suite) Upgrade(t *testing.T, set ...string) {
	t.Helper()
	must.OK(t, s.Cluster.Upgrade(t.Context(), s.Chart, s.Values, set...))
}

// Install is Upgrade, and waits until every agent is ready.
func (s *Suite) Install(t *testing.T, set ...string) {
	t.Helper()
	s.Upgrade(t, set...)
	err := s.Rollout(t.Context())
	if err == nil {
		return
	}
	for _, n := range s.Members {
		_, notReady := n.Fetch(t.Context(), "/readyz")
		t.Logf("%s: %v", n.Name, notReady)
	}
	t.Fatalf("%v\n%s", err, s.Kubectl(t, "-n", cluster.Namespace, "describe", "pods", "-l", "app.kubernetes.io/name=podweir"))
}

// Uninstall returns when the agents are gone. It may be a test's cleanup.
func (s *Suite) Uninstall(t *testing.T) {
	t.Helper()
	must.OK(t, s.Cluster.Uninstall(context.WithoutCancel(t.Context())))
}

// Green fails the test if the doctor of a node's agent finds anything.
func (s *Suite) Green(t *testing.T, n *cluster.Node) {
	t.Helper()
	report, err := s.Doctor(t.Context(), n)
	if err != nil {
		t.Errorf("doctor on %s: %v", n.Name, err)
		return
	}
	t.Logf("doctor on %s: %d checks", n.Name, len(report.Checks))
	for _, f := range report.Findings() {
		t.Errorf("doctor on %s: %v", n.Name, f)
	}
}

// Judge fails the test unless both directions keep to their caps, in bits per second, and
// use them. 0 is no cap.
func Judge(t *testing.T, what string, r workload.Traffic, ingress, egress uint64) {
	t.Helper()
	for _, d := range r.Directions(ingress, egress) {
		if err := d.Err(); err != nil {
			t.Errorf("%s: %v; Mbit/s in each 100 ms: %.1f", what, err, workload.Tenths(d.Series))
		}
		t.Logf("%s: %s", what, d)
	}
}

// Holds loads a pod for a while and judges that. What is too little is measured once more, and
// too much never.
func Holds(t *testing.T, what string, p, peer *workload.Pod, ingress, egress uint64) {
	t.Helper()
	measure := func() workload.Traffic {
		return must.Get(workload.Load{Pod: p, Peer: peer}.For(t.Context(), 4*time.Second))(t)
	}
	r := measure()
	if r.TooLittle(ingress, egress) {
		t.Logf("%s: %v, measured again", what, r.Err(ingress, egress))
		r = measure()
	}
	Judge(t, what, r, ingress, egress)
}
