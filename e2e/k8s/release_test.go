// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

const (
	chart     = "../../chart"
	namespace = cluster.Namespace
	// metricsPort is the chart's default.
	metricsPort = 9479
)

// install brings the release to these values, from whatever it is, and waits
// until every agent is ready.
func install(t *testing.T, set ...string) {
	t.Helper()
	upgrade(t, set...)
	err := suite.Rollout(t.Context())
	if err == nil {
		return
	}
	for _, n := range suite.Members {
		_, notReady := fetch(t.Context(), n, "/readyz")
		t.Logf("%s: %v", n.Name, notReady)
	}
	t.Fatalf("%v\n%s", err, kubectl(t, "-n", namespace, "describe", "pods", "-l", "app.kubernetes.io/name=podweir"))
}

// upgrade does not wait for agents.
func upgrade(t *testing.T, set ...string) {
	t.Helper()
	if err := suite.Upgrade(t.Context(), chart, set...); err != nil {
		t.Fatal(err)
	}
}

// uninstall returns when the agents are gone.
func uninstall(t *testing.T) {
	t.Helper()
	if _, err := suite.Helm(t.Context(), "uninstall", "podweir", "-n", namespace, "--ignore-not-found"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "uninstall", func(ctx context.Context) error {
		left, err := suite.Agents(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are still %v", left)
		}
		return err
	})
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
	return suite.Kubectl(t.Context(), "", append([]string{"-n", namespace, "exec", agent(t, n), "--", "podweir"}, args...)...)
}

// fetch reads from the HTTP port of a node's agent; another status than 200 is
// an error with what it answered.
func fetch(ctx context.Context, n *cluster.Node, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d%s", n.IP, metricsPort, path), http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
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

// green fails the test if the doctor of a node's agent does not answer that all
// is well.
func green(t *testing.T, n *cluster.Node) {
	t.Helper()
	// It ends with an error if a check fails.
	out, err := podweir(t, n, "doctor")
	if err != nil {
		t.Errorf("doctor on %s: %v\n%s", n.Name, err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	t.Logf("doctor on %s: %s", n.Name, lines[len(lines)-1])
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
	keepFact(t, "anonymous memory of the agent", "%.1f MiB", float64(kib)/1024)
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
