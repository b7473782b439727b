// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// killAgent kills the agent of a pod's node while the pod is under load, and
// waits for the next one. The pod's caps are 20M and 10M.
func killAgent(t *testing.T, p, peer *pod) {
	t.Helper()
	name := agent(t, p.Node)
	before := restarts(t, name)
	r := load(t, p, peer, func(ctx context.Context) error {
		if err := wait(2 * time.Second)(ctx); err != nil {
			return err
		}
		if _, err := p.Node.Exec(ctx, "pkill", "-KILL", "-x", "podweir"); err != nil {
			return err
		}
		err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
			if restarts(t, name) == before {
				return errors.New("the kubelet has not restarted it")
			}
			_, err := fetch(ctx, p.Node, "/readyz")
			return err
		})
		return errors.Join(err, wait(2*time.Second)(ctx))
	})
	r.holds(t, "while the agent was killed and came back", 20_000_000, 10_000_000)
}

// restarts is how often a pod of podweir was restarted.
func restarts(t *testing.T, name string) string {
	t.Helper()
	return kubectl(t, "-n", namespace, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
}

// TestPrivilegedAgentUpgraded replaces every agent, by another tag and other settings, while a
// pod is under load.
func TestPrivilegedAgentUpgraded(t *testing.T) {
	install(t)
	p := run(t, "steady", 0, limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	for _, n := range suite.Members {
		// The same image: what is tried is the change of agents.
		if _, err := n.Exec(t.Context(), "/node/components/ctr", "-n", "k8s.io", "images", "tag", "--force",
			"localhost/podweir/podweir:0.1.0", "localhost/podweir/podweir:0.1.0-next"); err != nil {
			t.Fatal(err)
		}
	}
	before := agent(t, p.Node)
	r := load(t, p, peer, func(ctx context.Context) error {
		if err := wait(2 * time.Second)(ctx); err != nil {
			return err
		}
		install(t, "image.tag=0.1.0-next", "logLevel=debug")
		return wait(2 * time.Second)(ctx)
	})
	if after := agent(t, p.Node); after == before {
		t.Errorf("the agent is %s as before", after)
	}
	r.holds(t, "while the agent was upgraded", 20_000_000, 10_000_000)
}
