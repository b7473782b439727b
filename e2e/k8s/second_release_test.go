// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	// second is the name of another release beside podweir's.
	second = "second"
	// These are its ports: the scheduler lets no two pods of a node have one.
	secondPort, secondHealth = 9480, 9481
	// undecided is longer than an agent waits for its delivery before it looks at
	// pods all the same.
	undecided = 12 * time.Second
)

// TestPrivilegedSecondRelease installs another release beside the first one, and
// takes off now the second, now the first.
func TestPrivilegedSecondRelease(t *testing.T) {
	mark.Nightly(t, "it takes a minute or more")
	install(t)
	p := run(t, "steady", 0, limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	installSecond(t)
	name := waits(t, p.Node)
	load(t, p, peer, wait(undecided)).holds(t, "while a second release waits", 20_000_000, 10_000_000)
	late := run(t, "late", 0, limits("10M", "20M"))
	late.limited(t, 10_000_000, 20_000_000)
	untold(t, p, late)
	if page, err := p.Node.FetchFrom(t.Context(), secondPort, "/metrics"); err != nil || strings.Contains(page, "podweir_pod_limit") {
		t.Errorf("the agent that waits tells of pods, too (%v):\n%s", err, grep(page, "podweir_pod_limit"))
	}
	if out, err := podweir(t, p.Node, "doctor"); !strings.Contains(out, "PW220") || !strings.Contains(out, name) {
		t.Errorf("doctor does not tell of %s (%v):\n%s", name, err, out)
	}

	removeRelease(t, second)
	measure(t, p, peer).holds(t, "after the second release was taken off", 20_000_000, 10_000_000)
	green(t, p.Node)

	installSecond(t)
	waits(t, p.Node)
	removeRelease(t, "podweir")
	eventually(t, time.Minute, "take over", func(ctx context.Context) error {
		_, err := p.Node.FetchFrom(ctx, secondHealth, "/readyz")
		return err
	})
	measure(t, p, peer).holds(t, "after the first release was taken off", 20_000_000, 10_000_000)
	later := run(t, "later", 0, limits("10M", "20M"))
	measure(t, later, peer).holds(t, "a pod from after the take-over", 10_000_000, 20_000_000)
	untold(t, p, late, later)
	removeRelease(t, second)
	measure(t, p, peer).holds(t, "after both releases were taken off", 0, 0)
}

func installSecond(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		// The test's own context is over by now.
		_, err := suite.Helm(context.Background(), "uninstall", second, "-n", namespace, "--ignore-not-found")
		if err != nil {
			t.Error(err)
		}
	})
	_, err := suite.Helm(t.Context(), "upgrade", "--install", second, chart, "-n", namespace,
		"--set", "image.pullPolicy=Never", "--set", fmt.Sprintf("metrics.port=%d,health.port=%d,cluster.enabled=false", secondPort, secondHealth))
	must.OK(t, err)
}

// ofRelease are the names of a release's agents.
func ofRelease(ctx context.Context, release, node string) ([]string, error) {
	args := []string{
		"-n", namespace, "get", "pods", "-l", "app.kubernetes.io/instance=" + release, "-o", "jsonpath={.items[*].metadata.name}",
	}
	if node != "" {
		args = append(args, "--field-selector", "spec.nodeName="+node)
	}
	out, err := suite.Kubectl(ctx, "", args...)
	return strings.Fields(out), err
}

// waits returns the name of the second release's agent of a node when it says
// everywhere that it waits for the first one.
func waits(t *testing.T, n *cluster.Node) string {
	t.Helper()
	first, err := ofRelease(t.Context(), "podweir", n.Name)
	if err != nil || len(first) != 1 {
		t.Fatalf("agents of the first release: %v, %v", first, err)
	}
	const says = "another agent of podweir manages this node"
	eventually(t, time.Minute, "the agent that waits", func(ctx context.Context) error {
		_, err := n.FetchFrom(ctx, secondHealth, "/readyz")
		if text := fmt.Sprint(err); !strings.Contains(text, "not ready: exclusive: "+says) || !strings.Contains(text, first[0]) {
			return fmt.Errorf("/readyz: %s", text)
		}
		return nil
	})
	names, err := ofRelease(t.Context(), second, n.Name)
	if err != nil || len(names) != 1 {
		t.Fatalf("agents of the second release: %v, %v", names, err)
	}
	// The API server hears of a container that runs some seconds later.
	eventually(t, 20*time.Second, "the log", func(ctx context.Context) error {
		log, err := suite.Kubectl(ctx, "", "-n", namespace, "logs", names[0])
		if err == nil && !strings.Contains(log, says) {
			err = fmt.Errorf("it does not say that the agent waits:\n%s", log)
		}
		return err
	})
	e := sees(t, names[0], says, first[0])
	t.Logf("Event of an agent that waits: %s: %s", e.Reason, e.Message)
	return names[0]
}

// untold fails the test if the owner of a pod was warned.
func untold(t *testing.T, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		list, err := events(t.Context(), p.Name)
		must.OK(t, err)
		for _, e := range list {
			if e.Type == "Warning" {
				t.Errorf("%s was told: %s: %s", p.Name, e.Reason, e.Message)
			}
		}
	}
}

// removeRelease returns when the agents of a release are gone.
func removeRelease(t *testing.T, name string) {
	t.Helper()
	if _, err := suite.Helm(t.Context(), "uninstall", name, "-n", namespace); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "uninstall", func(ctx context.Context) error {
		left, err := ofRelease(ctx, name, "")
		if err == nil && len(left) > 0 {
			err = errors.New("there are still " + strings.Join(left, ", "))
		}
		return err
	})
}
