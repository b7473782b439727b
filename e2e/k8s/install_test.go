// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/e2e/k8s/clustertest"
	"github.com/podweir/podweir/e2e/k8s/snapshot"
	"github.com/podweir/podweir/e2e/k8s/workload"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// TestPrivilegedUninstall takes the release off while its pods run, and compares
// the nodes with what they were before it came. Rows of the matrix uninstall from the other
// deliveries.
func TestPrivilegedUninstall(t *testing.T) {
	suite.Uninstall(t)
	p := run(t, "staying", 0, workload.Limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	var before []snapshot.Snapshot
	for _, n := range suite.Members {
		// Of what other tests left nothing may be taken for the node's own.
		must.OK(t, must.Err(n.Exec(t.Context(), "rm", "-rf", "/run/podweir", "/var/lib/podweir")))
		before = append(before, take(t, n))
	}
	suite.Install(t, "delivery=drop-in")
	p.holds(t, peer, "with podweir", 20_000_000, 10_000_000)
	var changed bool
	for i, n := range suite.Members {
		changed = changed || len(take(t, n)) != len(before[i])
	}
	if !changed {
		t.Error("podweir changed nothing that the snapshots show")
	}
	suite.Uninstall(t)
	for i, n := range suite.Members {
		unchanged(t, n, before[i])
	}
	p.holds(t, peer, "after the uninstall", 0, 0)
	late := run(t, "late", 0, workload.Limits("20M", "10M"))
	late.holds(t, peer, "a pod from after the uninstall", 0, 0)
}

// TestPrivilegedDownDuringUninstall uninstalls the release while a node is down, and
// takes podweir off that node as the how-to says when it is back.
func TestPrivilegedDownDuringUninstall(t *testing.T) {
	suite.Uninstall(t)
	node := suite.Members[0]
	p := run(t, "staying", 0, workload.Limits("20M", "10M"))
	peer := run(t, "peer", 1, nil)
	// Of what other tests left nothing may be taken for the node's own.
	must.OK(t, must.Err(node.Exec(t.Context(), "rm", "-rf", "/run/podweir", "/var/lib/podweir")))
	before := take(t, node)
	suite.Install(t, "delivery=chain")
	p.limited(t, 20_000_000, 10_000_000)

	// Nobody on the node sees that the release is uninstalled.
	const down, up = "pkill -STOP -x kubelet; pkill -KILL -x podweir", "pkill -CONT -x kubelet"
	must.OK(t, must.Err(node.Exec(t.Context(), "bash", "-c", down)))
	back := func(ctx context.Context) {
		must.OK(t, must.Err(node.Exec(ctx, "bash", "-c", up)))
	}
	t.Cleanup(func() { back(context.Background()) })
	must.OK(t, must.Err(suite.Helm(t.Context(), "uninstall", "podweir", "-n", namespace)))
	clustertest.Eventually(t, 90*time.Second, "the agent of the other node is gone", func(ctx context.Context) error {
		left, err := suite.Agents(ctx)
		if err == nil && (len(left) != 1 || left[node.Name] == "") {
			err = fmt.Errorf("agents: %v", left)
		}
		return err
	})
	back(t.Context())
	suite.Uninstall(t) // waits until the kubelet has let the agent go
	must.Have(t, "the node, which is not clean by itself", must.Get(node.Exec(t.Context(), "ls", "/etc/cni/net.d"))(t), "podweir")
	p.holds(t, peer, "a node that was down", 20_000_000, 10_000_000)

	// As in docs/howto/install-with-helm.md.
	jobs, err := suite.Helm(t.Context(), "template", "podweir", chart, "-n", namespace, "--set", "image.pullPolicy=Never",
		"--kube-version", "1.34", "--set", "cleanUp.nodes={"+node.Name+"}", "--show-only", "templates/cleanup.yaml")
	must.OK(t, err)
	must.OK(t, must.Err(suite.Cluster.Kubectl(t.Context(), jobs, "apply", "-f", "-")))
	const selector = "app.kubernetes.io/component=cleanup"
	suite.Undo(t, "-n", namespace, "delete", "job", "-l", selector, "--ignore-not-found")
	if _, err := suite.Cluster.Kubectl(t.Context(), "", "-n", namespace, "wait", "--for=condition=complete", "--timeout=60s", "job", "-l", selector); err != nil {
		t.Fatalf("%v\n%s", err, suite.Kubectl(t, "-n", namespace, "logs", "-l", selector))
	}
	t.Log(suite.Kubectl(t, "-n", namespace, "logs", "-l", selector))
	suite.Kubectl(t, "-n", namespace, "delete", "job", "-l", selector, "--wait")
	clustertest.Eventually(t, 30*time.Second, "the pods of the Job", func(ctx context.Context) error {
		out, err := suite.Cluster.Kubectl(ctx, "", "-n", namespace, "get", "pods", "-l", selector, "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("there is still %s", out)
		}
		return err
	})
	unchanged(t, node, before)
	p.holds(t, peer, "after the clean-up", 0, 0)
}

// TestPrivilegedHelmTest runs "helm test": it passes on a release whose pods have their
// limits, and names what is wrong where one was taken away and no agent can mend it.
func TestPrivilegedHelmTest(t *testing.T) {
	mark.Nightly(t, "it takes 20 s")
	suite.Install(t)
	suite.Undo(t, "-n", namespace, "delete", "pod", "podweir-test", "--ignore-not-found")
	p := run(t, "lived", 0, workload.Limits("20M", "10M"))
	other := run(t, "other", 1, workload.Limits("20M", "10M"))
	p.limited(t, 20_000_000, 10_000_000)
	other.limited(t, 20_000_000, 10_000_000)

	must.Have(t, "the test of a healthy release", must.Get(helmTest(t))(t), "No problem found.")
	// It looks at one node, which the scheduler chooses.
	for _, one := range []*pod{p, other} {
		stopAgent(t, one.Node)
		must.OK(t, must.Err(one.tc(t.Context(), "qdisc", "del", "dev", "eth0", "root")))
	}
	out, err := helmTest(t)
	must.Fail(t, "the test without the pods' queues", err, "podweir-test failed")
	if !strings.Contains(out, "PW602") || !strings.Contains(out, "default/"+p.Name) && !strings.Contains(out, "default/"+other.Name) {
		t.Errorf("the log of the test does not say which pod lacks its limit:\n%s", out)
	}
}

// helmTest runs "helm test" as docs/howto/install-with-helm.md does.
func helmTest(t *testing.T) (string, error) {
	t.Helper()
	return suite.Helm(t.Context(), "test", "podweir", "-n", namespace, "--logs", "--timeout", "60s")
}

// tc runs tc in the pod's network namespace.
func (p *pod) tc(ctx context.Context, args ...string) (string, error) {
	ns := strings.TrimPrefix(p.NS.Path(), p.Node.Path(""))
	return p.Node.Exec(ctx, append([]string{"nsenter", "--net=" + ns, "tc"}, args...)...)
}
