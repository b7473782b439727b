// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/k8s/clustertest"
)

const (
	chart     = "../../chart"
	namespace = cluster.Namespace
)

// install brings the release to these values, from whatever it is, and waits
// until every agent is ready.
func install(t *testing.T, set ...string) {
	t.Helper()
	clustertest.Install(t, suite.Cluster, chart, "generic", set...)
}

// upgrade does not wait for agents.
func upgrade(t *testing.T, set ...string) {
	t.Helper()
	if err := suite.Upgrade(t.Context(), chart, set...); err != nil {
		t.Fatal(err)
	}
}

func uninstall(t *testing.T) {
	t.Helper()
	clustertest.Uninstall(t, suite.Cluster)
}

// agent is the name of the agent of a node.
func agent(t *testing.T, n *cluster.Node) string {
	t.Helper()
	all, err := suite.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if all[n.Name] == "" {
		t.Fatalf("no agent on %s: %v", n.Name, all)
	}
	return all[n.Name]
}

// podweir runs podweir in the agent of a node.
func podweir(t *testing.T, n *cluster.Node, args ...string) (string, error) {
	t.Helper()
	return suite.Podweir(t.Context(), n, args...)
}

// fetch reads from the HTTP port of a node's agent.
func fetch(ctx context.Context, n *cluster.Node, path string) (string, error) {
	return n.Fetch(ctx, path)
}

// metrics waits until a node's metrics are as they should be.
func metrics(t *testing.T, n *cluster.Node, want func(page string) error) {
	t.Helper()
	eventually(t, 20*time.Second, "metrics of "+n.Name, func(ctx context.Context) error {
		page, err := fetch(ctx, n, "/metrics")
		if err != nil {
			return err
		}
		return want(page)
	})
}

func green(t *testing.T, n *cluster.Node) {
	t.Helper()
	clustertest.Green(t, suite.Cluster, n)
}

// mostAnonymous is the agent's bar (ruling 17 of the design), in KiB.
const mostAnonymous = 15 << 10

// small holds the anonymous memory of a node's agent to its bar.
func small(t *testing.T, n *cluster.Node) {
	t.Helper()
	out, err := n.Exec(t.Context(), "bash", "-c", "sed -n 's/^RssAnon:[[:space:]]*//p' /proc/$(pgrep -x podweir)/status")
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	if _, err := fmt.Sscanf(out, "%d kB", &kib); err != nil {
		t.Fatalf("RssAnon %q: %v", out, err)
	}
	t.Logf("anonymous memory of the agent: %.1f MiB", float64(kib)/1024)
	if kib > mostAnonymous {
		t.Errorf("the agent has %d KiB of anonymous memory, want at most %d", kib, mostAnonymous)
	}
}

// grep are the lines of a text that have a part.
func grep(text, part string) string {
	var found strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found.WriteString(line)
		}
	}
	return found.String()
}
