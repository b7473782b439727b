// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPrivilegedDownDuringUninstall uninstalls the release while a node is down, and
// takes podweir off that node as the how-to says when it is back.
func TestPrivilegedDownDuringUninstall(t *testing.T) {
	uninstall(t)
	node := suite.Members[0]
	p := run(t, "staying", 0, limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	// Of what other tests left nothing may be taken for the node's own.
	if _, err := node.Exec(t.Context(), "rm", "-rf", "/run/podweir", "/var/lib/podweir"); err != nil {
		t.Fatal(err)
	}
	before := take(t, node)
	install(t, "delivery=chain")
	p.limited(t, 20_000_000, 10_000_000)

	// Nobody on the node sees that the release is uninstalled.
	const down, up = "pkill -STOP -x kubelet; pkill -KILL -x podweir", "pkill -CONT -x kubelet"
	if _, err := node.Exec(t.Context(), "bash", "-c", down); err != nil {
		t.Fatal(err)
	}
	back := func(ctx context.Context) {
		if _, err := node.Exec(ctx, "bash", "-c", up); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { back(context.Background()) })
	if _, err := suite.Helm(t.Context(), "uninstall", "podweir", "-n", namespace); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "the agent of the other node is gone", func(ctx context.Context) error {
		left, err := suite.Agents(ctx)
		if err == nil && (len(left) != 1 || left[node.Name] == "") {
			err = fmt.Errorf("agents: %v", left)
		}
		return err
	})
	back(t.Context())
	uninstall(t) // waits until the kubelet has let the agent go
	if out, err := node.Exec(t.Context(), "ls", "/etc/cni/net.d"); err != nil || !strings.Contains(out, "podweir") {
		t.Errorf("the node is clean by itself (%v): %s", err, out)
	}
	measure(t, p, peer).holds(t, "a node that was down", 20_000_000, 10_000_000)

	// As in docs/howto/install-with-helm.md.
	jobs, err := suite.Helm(t.Context(), "template", "podweir", chart, "-n", namespace, "--set", "image.pullPolicy=Never",
		"--kube-version", "1.34", "--set", "cleanUp.nodes={"+node.Name+"}", "--show-only", "templates/cleanup.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Kubectl(t.Context(), jobs, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	const selector = "app.kubernetes.io/component=cleanup"
	t.Cleanup(func() {
		_, err := suite.Kubectl(context.Background(), "", "-n", namespace, "delete", "job", "-l", selector, "--ignore-not-found")
		if err != nil {
			t.Error(err)
		}
	})
	if _, err := suite.Kubectl(t.Context(), "", "-n", namespace, "wait", "--for=condition=complete", "--timeout=60s", "job", "-l", selector); err != nil {
		t.Fatalf("%v\n%s", err, kubectl(t, "-n", namespace, "logs", "-l", selector))
	}
	t.Log(kubectl(t, "-n", namespace, "logs", "-l", selector))
	kubectl(t, "-n", namespace, "delete", "job", "-l", selector, "--wait")
	eventually(t, 30*time.Second, "the pods of the Job", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "", "-n", namespace, "get", "pods", "-l", selector, "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("there is still %s", out)
		}
		return err
	})
	unchanged(t, node, before)
	measure(t, p, peer).holds(t, "after the clean-up", 0, 0)
}
