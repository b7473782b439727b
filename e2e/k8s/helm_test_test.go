// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"context"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/mark"
)

// TestPrivilegedHelmTest runs "helm test": it passes on a release whose pods have their
// limits, and names what is wrong where somebody took one and no agent can mend it.
func TestPrivilegedHelmTest(t *testing.T) {
	mark.Nightly(t, "it takes 20 s")
	install(t)
	undo(t, "-n", namespace, "delete", "pod", "podweir-test", "--ignore-not-found")
	p := run(t, "lived", 0, limits("20M", "10M"))
	other := run(t, "other", 1, limits("20M", "10M"))
	p.limited(t, 20_000_000, 10_000_000)
	other.limited(t, 20_000_000, 10_000_000)

	if out, err := helmTest(t); err != nil || !strings.Contains(out, "No problem found.") {
		t.Errorf("on a healthy release: %v\n%s", err, out)
	}
	// It looks at one node, which the scheduler chooses.
	for _, one := range []*pod{p, other} {
		stopAgent(t, one.Node)
		if _, err := one.tc(t.Context(), "qdisc", "del", "dev", "eth0", "root"); err != nil {
			t.Fatal(err)
		}
	}
	out, err := helmTest(t)
	if err == nil || !strings.Contains(err.Error(), "podweir-test failed") {
		t.Errorf("without the pods' queues: %v\n%s", err, out)
	}
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
	return p.inNetns(ctx, append([]string{"tc"}, args...)...)
}

// inNetns runs a command of the node in the pod's network namespace.
func (p *pod) inNetns(ctx context.Context, args ...string) (string, error) {
	ns := strings.TrimPrefix(p.NS.Path(), p.Node.Path(""))
	return p.Node.Exec(ctx, append([]string{"nsenter", "--net=" + ns}, args...)...)
}
